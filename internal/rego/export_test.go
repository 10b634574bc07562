package rego

// Txtar is for the tests outside of the package.
var Txtar = txtar
