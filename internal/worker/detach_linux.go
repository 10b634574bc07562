package worker

import (
	"os/exec"
	"syscall"
)

// detach keeps a terminal's Ctrl-C from the child (its parent ends it) and
// makes it end with its parent, however that dies.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
