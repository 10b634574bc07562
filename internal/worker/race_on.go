//go:build race

package worker

// childMemory is the memory limit of a child in bytes. It is larger here because the race
// detector needs several times the memory.
const childMemory = 4 * 256 << 20
