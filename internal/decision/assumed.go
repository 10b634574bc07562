package decision

import "sync/atomic"

// assumedEnvironment is added to the generated reason of a decision whose request names no
// environment. If a control seems to have no effect, it is often in the other environment.
const assumedEnvironment = " (decided in production: the request names no environment)"

// assumedReasons caches the last of these reasons. There are only a few different ones, so most decisions
// need not build the text.
type assumedReasons struct {
	kept [16]atomic.Pointer[assumedReason]
}

type assumedReason struct{ own, whole string }

// reason returns own with assumedEnvironment added.
func (a *assumedReasons) reason(own string) string {
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
