package decision

import "github.com/gatehouse-dev/gatehouse/internal/rego"

// RequestAccess is a request for access that the caller may file after a denial. Only its reason is
// missing.
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

// RequestAccessFor returns the request for access that may be filed after a decision; nil if none.
func RequestAccessFor(d *rego.Decision, req *rego.Request) *RequestAccess {
	h, ok := d.AccessHint(req)
	if !ok {
		return nil
	}
	return &RequestAccess{RequestSubject{h.Subject}, RequestAction{h.Action}, RequestSubject{h.Resource}}
}

// append appends the request as a member of a JSON object that already has members; nothing if it is
// nil.
func (a *RequestAccess) append(dst []byte) []byte {
	if a == nil {
		return dst
	}
	return rego.AccessHint{Subject: a.Subject.ID, Action: a.Action.Name, Resource: a.Resource.ID}.AppendJSON(append(dst, `,"request_access":`...))
}
