//go:build !race

package apptest

// Race is true if the test, and so the program under test, is built with the race detector. Then it
// is slower and needs several times the memory.
const Race = false
