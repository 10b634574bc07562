package rego

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// requestable caches whether a control has the annotation; it is nil before the first call.
type requestable = atomic.Pointer[bool]

// Requestable reports whether the custom annotation request_access of the control's package is
// true. Only the first call parses the source.
func (c *Control) Requestable() bool {
	if known := c.requestable.Load(); known != nil {
		return *known
	}
	yes := strings.Contains(c.source, target.RequestAccess) && lang.Annotated(c.source, target.RequestAccess)
	c.requestable.Store(&yes)
	return yes
}

// Requestable reports whether access to a resource may be requested: the resource itself or a
// control that decides about it says so.
func (s *Set) Requestable(r *target.Resource) bool {
	if r.Requestable() {
		return true
	}
	for _, c := range s.ControlsOf([]int64{r.ID}) {
		if c.Requestable() {
			return true
		}
	}
	return false
}

// Requestable reports whether the subject may request access after this denial: the resource or
// the control that denied says so. If no control matched, any control that was evaluated may say
// so. It is false after an error and for an AI agent that is stopped, because a grant would not
// change that.
func (d *Decision) Requestable() bool {
	if d.Permit || d.Err != nil || d.Stopped || d.Resource == nil {
		return false
	}
	if d.Resource.Requestable() {
		return true
	}
	for _, c := range d.Ran {
		if (d.PolicyName == "" || c.meta.ID == d.PolicyID) && c.Requestable() {
			return true
		}
	}
	return false
}

// AccessHint is the access that may be requested after a denial.
type AccessHint struct {
	// Subject is the id of the subject that was denied, Action the name of the action.
	Subject, Action string
	// Resource is the id of the matched resource.
	Resource string
}

// AccessHint returns the access that may be requested after a decision; false means none.
func (d *Decision) AccessHint(req *Request) (AccessHint, bool) {
	if !d.Requestable() {
		return AccessHint{}, false
	}
	subject, known := req.User.Get("id").Str()
	action, named := req.Action.Get("name").Str()
	if !known || !named || subject == "" || action == "" {
		return AccessHint{}, false
	}
	return AccessHint{subject, action, strconv.FormatInt(d.Resource.ID, 10)}, true
}

// AppendJSON appends the hint as JSON: the body of a request for access, without the reason.
func (h AccessHint) AppendJSON(dst []byte) []byte {
	dst = value.AppendString(append(dst, `{"subject":{"id":`...), h.Subject)
	dst = value.AppendString(append(dst, `},"action":{"name":`...), h.Action)
	dst = value.AppendString(append(dst, `},"resource":{"id":`...), h.Resource)
	return append(dst, "}}"...)
}
