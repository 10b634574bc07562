package decision

import (
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// RequestAccess is a request for access that may be filed after a denial, but for its reason.
type RequestAccess struct {
	Subject  RequestSubject `json:"subject" doc:"Who was denied"`
	Action   RequestAction  `json:"action" doc:"What was denied"`
	Resource RequestSubject `json:"resource" doc:"The matched resource"`
}

// RequestSubject names a subject or a resource.
type RequestSubject struct {
	ID string `json:"id" doc:"Identifier" example:"7"`
}

// RequestAction names an action.
type RequestAction struct {
	Name string `json:"name" doc:"Name of the action" example:"read"`
}

// requestAccess is what may be requested after a decision; nil: nothing.
func requestAccess(d *rego.Decision, req *rego.Request) *RequestAccess {
	if !d.Requestable() {
		return nil
	}
	subject, known := req.User.Get("id").Str()
	action, named := req.Action.Get("name").Str()
	if !known || !named || subject == "" || action == "" {
		return nil
	}
	return &RequestAccess{RequestSubject{subject}, RequestAction{action}, RequestSubject{strconv.FormatInt(d.Resource.ID, 10)}}
}

func (a *RequestAccess) appendJSON(dst []byte) []byte {
	dst = value.AppendString(append(dst, `{"subject":{"id":`...), a.Subject.ID)
	dst = value.AppendString(append(dst, `},"action":{"name":`...), a.Action.Name)
	dst = value.AppendString(append(dst, `},"resource":{"id":`...), a.Resource.ID)
	return append(dst, "}}"...)
}
