//go:build !linux

package worker

// limitAddressSpace does nothing on this system. The watcher alone enforces the limit.
func limitAddressSpace(int64) {}
