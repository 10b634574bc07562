package worker

import "golang.org/x/sys/unix"

// niceness is the scheduling priority of children. On a busy machine the kernel gives a
// child about a tenth of the time of a server thread. A burst of hostile programs then
// does not slow another tenant's decisions, and a busy server still checks a control
// within seconds. On an idle machine it costs nothing.
const niceness = 10

// lowerPriority lowers the priority of a child and of everything that it starts. It addresses
// the process group that detach made, because that covers every thread, including later
// ones. If the kernel refuses, the limits on time and number remain.
func lowerPriority(pid int) { _ = unix.Setpriority(unix.PRIO_PGRP, pid, niceness) }
