package enforce

import (
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// What an event carries for replay at the lower audit levels: of a burst of
// decisions all inputs, then so many a second, none over a size, and none while the
// spool fills: an input must never take the room of a decision.
const (
	inputBurst     = 20_000
	inputRate      = 500
	inputMost      = 16 << 10 // bytes
	inputSpoolPart = 4        // of the spool's bound
)

func newInputAllowance() *spool.Allowance { return spool.NewAllowance(inputBurst, inputRate) }

// appendEventInput writes the input of an event, redacted: all of it where the
// audit level keeps it or it is kept for replay, else the part that every level keeps.
func (b *Bouncer) appendEventInput(dst []byte, st *state, in *inbound, who *identity.Caller, v *verdict, level string) []byte {
	kept := level == auditDetailed || level == auditComprehensive
	if !kept && !b.carriesInput(st, in) {
		return appendBasicInput(dst, in, who, v)
	}
	buf := b.events.Get().(*[]byte)
	defer b.events.Put(buf)
	*buf = appendInput((*buf)[:0], question(b.recordable(in, v), st.settings, who))
	if !kept && len(*buf) > inputMost {
		return appendBasicInput(dst, in, who, v)
	}
	dst, _ = redact.JSON(dst, *buf)
	return dst
}

// carriesInput reports whether the event of a decision carries its input for replay.
func (b *Bouncer) carriesInput(st *state, in *inbound) bool {
	if st.replayOff || in.seen != nil && len(in.seen.body) > inputMost {
		return false
	}
	return b.inputs.Take(in.at) && b.spool.Bytes() < b.cfg.SpoolBytes/inputSpoolPart
}
