//go:build !linux

package worker

import "os/exec"

// detach does nothing on this system. A child ends when its input ends.
func detach(*exec.Cmd) {}
