package enforce

import (
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
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
func (b *Bouncer) appendEventInput(dst []byte, st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict, level string) []byte {
	kept := level == auditDetailed || level == auditComprehensive
	if !kept && !b.carriesInput(st, in) {
		return appendBasicInput(dst, in, who, v)
	}
	from := len(dst)
	if told := b.recordable(in, v); told == in && v.asked.User.Defined() {
		dst = appendInput(dst, &v.asked)
	} else {
		q := told.Question(st.Settings, who)
		dst = appendInput(dst, &q)
	}
	if !kept && len(dst)-from > inputMost {
		return appendBasicInput(dst[:from], in, who, v)
	}
	return dst
}

// appendInput writes the input of a decision, redacted.
func appendInput(dst []byte, q *rego.Request) []byte {
	dst = append(dst, `{"user":`...)
	dst = redact.AppendValue(dst, q.User)
	dst = append(dst, `,"action":`...)
	dst = redact.AppendValue(dst, q.Action)
	dst = append(dst, `,"resource":`...)
	dst = redact.AppendValue(dst, q.Resource)
	dst = append(dst, `,"context":`...)
	dst = redact.AppendValue(dst, q.Context)
	q.Extra.Each(func(name string, v value.Value) bool {
		dst = redact.AppendMember(dst, ',', name, v)
		return true
	})
	return append(dst, '}')
}

// carriesInput reports whether the event of a decision carries its input for replay.
func (b *Bouncer) carriesInput(st *settings.State, in *request.Inbound) bool {
	if st.ReplayOff || in.Seen != nil && len(in.Seen.Body) > inputMost {
		return false
	}
	return b.inputs.Take(in.At) && b.journal.Spool.Bytes() < b.cfg.SpoolBytes/inputSpoolPart
}
