package decision

import "sync/atomic"

// assumedEnvironment ends the generated reason of a decision whose request names no
// environment: a control that seems to have no effect is often in the other one.
const assumedEnvironment = " (decided in production: the request names no environment)"

// assumed caches the last of these reasons. There are only a few, by control and effect, so
// most decisions build no text.
type assumed struct {
	kept [16]atomic.Pointer[assumedReason]
}

type assumedReason struct{ own, whole string }

// reason returns a reason with this ending.
func (a *assumed) reason(own string) string {
	place := len(own)
	if place > 0 {
		place += int(own[place-1])
	}
	kept := &a.kept[place%len(a.kept)]
	if last := kept.Load(); last != nil && last.own == own {
		return last.whole
	}
	r := &assumedReason{own, own + assumedEnvironment}
	kept.Store(r)
	return r.whole
}
