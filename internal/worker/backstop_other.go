//go:build !linux

package worker

// backstop does nothing on this system. The watcher alone enforces the limit.
func backstop(int64) {}
