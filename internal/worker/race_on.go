//go:build race

package worker

// childMemory is the shipped cap of one child in bytes. The race detector takes
// several times the memory of what it watches, which is not the author's doing.
const childMemory = 4 * 256 << 20
