package worker

import "golang.org/x/sys/unix"

// niceness is how far a child steps back when processors are short: the kernel
// gives it about a tenth of what it gives a thread of the server. A burst of hostile
// programs is then not felt by another tenant's decisions, and a busy server still
// checks a control in seconds. On an idle machine it costs nothing.
const niceness = 10

// stepBack lowers the priority of a child and of all that it will start. It goes
// by the process group, which detach made, for that covers every thread; those
// that come later inherit it. A refusal leaves the limits on time and number.
func stepBack(pid int) { _ = unix.Setpriority(unix.PRIO_PGRP, pid, niceness) }
