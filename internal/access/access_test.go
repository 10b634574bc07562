package access

import (
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestEndOfRequests: a grant and a request that nobody decided end at their time exactly, and what a person
// does with them afterwards does not change how they ended.
func TestEndOfRequests(t *testing.T) {
	end := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	before := end.Add(-time.Nanosecond)
	for name, c := range map[string]struct {
		request        Request
		now            time.Time
		status         string
		decide, revoke bool
		ended, event   string
	}{
		"pending for ever":       {Request{Status: Pending}, end, Pending, true, false, Denied, eventDenied},
		"pending before its end": {Request{Status: Pending, LapsesAt: &end}, before, Pending, true, false, Denied, eventDenied},
		"pending at its end":     {Request{Status: Pending, LapsesAt: &end}, end, Expired, false, false, Expired, eventLapsed},
		"a grant before its end": {Request{Status: Approved, ExpiresAt: &end}, before, Approved, false, true, Revoked, "ACCESS_REVOKED"},
		"a grant at its end":     {Request{Status: Approved, ExpiresAt: &end}, end, Expired, false, false, Expired, "ACCESS_EXPIRED"},
		"denied":                 {Request{Status: Denied, LapsesAt: &end}, end, Denied, false, false, "", ""},
		"withdrawn":              {Request{Status: Withdrawn, LapsesAt: &end}, end, Withdrawn, false, false, "", ""},
	} {
		if got := c.request.at(c.now).Status; got != c.status {
			t.Errorf("%s: status = %s, want %s", name, got, c.status)
		}
		if err := c.request.checkPending(c.now); (err == nil) != c.decide || err != nil && !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: waits = %v, want it to wait for a decision: %t", name, err, c.decide)
		}
		revoked := c.request
		if err := revoked.revoke("ann", "no need", c.now); (err == nil) != c.revoke || err != nil && !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: revoke = %v, want it revoked: %t", name, err, c.revoke)
		}
		if c.event == "" {
			continue
		}
		ended := c.request
		if event := ended.end("ann", "left", c.now); event != c.event || ended.Status != c.ended {
			t.Errorf("%s: end = %s with the status %s, want %s with %s", name, event, ended.Status, c.event, c.ended)
		}
	}
}

// TestIsFor: a request belongs to the person who filed it and to its subject, in every spelling of their
// names, but not to a key with the same id.
func TestIsFor(t *testing.T) {
	ann := user.User{ID: "u1", Username: "Ann", Email: "ann@example.com"}
	for name, c := range map[string]struct {
		request Request
		want    bool
	}{
		"the id":           {Request{SubjectID: "u1"}, true},
		"the name":         {Request{SubjectID: "ANN"}, true},
		"the address":      {Request{SubjectID: "Ann@Example.com"}, true},
		"the filer":        {Request{SubjectID: "bob", CallerKind: string(scope.Person), CallerID: "u1"}, true},
		"a key as filer":   {Request{SubjectID: "bob", CallerKind: string(scope.Key), CallerID: "u1"}, false},
		"another person":   {Request{SubjectID: "bob", CallerKind: string(scope.Person), CallerID: "u2"}, false},
		"a part of a name": {Request{SubjectID: "an"}, false},
	} {
		if got := c.request.isFor(ann); got != c.want {
			t.Errorf("%s: isFor = %t, want %t", name, got, c.want)
		}
	}
}
