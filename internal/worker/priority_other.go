//go:build !linux

package worker

// lowerPriority does nothing on this system. The limits on time and number remain.
func lowerPriority(int) {}
