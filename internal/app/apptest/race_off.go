//go:build !race

package apptest

// Race says that the program under test is built with the race detector, as the
// test is: it is slower then, and takes several times the memory.
const Race = false
