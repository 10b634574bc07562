package worker

import (
	"os/exec"
	"syscall"
)

// detach moves the child to its own process group, so that it ignores Ctrl-C, and makes the kernel
// kill it when the parent ends.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
