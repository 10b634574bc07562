//go:build !race

package worker

// childMemory is the shipped cap of one child in bytes.
const childMemory = 256 << 20
