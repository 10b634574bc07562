//go:build !race

package worker

// childMemory is the memory limit of a child in bytes.
const childMemory = 256 << 20
