package simulator

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
)

var ran = time.Date(2026, 11, 21, 9, 30, 15, 123_000_000, time.UTC)

// doc decodes a JSON document.
func doc(t testing.TB, text string) record.Object {
	t.Helper()
	return record.Object{Value: valuetest.Decode(t, text)}
}

// sample is a denied run.
func sample(t testing.TB) record.Record {
	t.Helper()
	in := doc(t, `{"user":{"id":"jose","clearance":2},"action":{"method":"GET"}}`)
	return record.Record{
		Decision: "DENY", Reason: "only cleared managers may read payroll", Input: in, EvaluatedInput: in,
		Explanation: reason.Explanation{Effect: "DENY", Rule: "allow", Line: 3, Nearest: &reason.Alternative{
			Rule: "allow", Line: 10, Missing: []reason.Condition{{Line: 12, Source: "input.user.clearance >= 3"}},
		}},
		Output: doc(t, `{"decision":"DENY","mask":[]}`), Policy: record.Subject{ID: 12, Name: "payroll", Version: 3, Status: "draft"}, Environment: "sandbox",
		TestType: "manual", User: record.Actor{Kind: "user", ID: "7", Name: "zoe"},
		Trace: []reason.Step{
			{Number: 1, Type: "policy_matched", Description: "The control is evaluated", Result: true, Details: value.Object()},
			{Number: 2, Type: "condition_eval", Description: "input.user.clearance >= 3", Details: value.Object()},
		},
	}
}

// keptSample returns a record as it is stored.
func keptSample(t testing.TB, rec record.Record) record.StoredRun {
	t.Helper()
	text, _, err := sealRecord(rec)
	errtest.Must(t, err)
	sum := sha256.Sum256(text)
	k, err := parseStored(row{ID: 41, Record: string(text), Digest: hex.EncodeToString(sum[:])})
	errtest.Must(t, err)
	return k
}

// TestSealed checks that a value of a member with a secret name is nowhere in a record, whatever the
// control does with it.
func TestSealed(t *testing.T) {
	rec := sample(t)
	in := doc(t, `{"user":{"password":"hunter22secret","pin_token":12345678,"owner_email":"boss@example.com"},"context":{"api_key":["k-111111"]}}`)
	rec.Input, rec.EvaluatedInput = in, in
	rec.Reason = "denied to hunter22secret with 12345678"
	rec.Notes = []string{"boss@example.com was told"}
	rec.Error = "k-111111"
	rec.Explanation.Nearest.Missing[0].Values = []reason.Binding{{Path: "input.user.password", Value: value.String("hunter22secret")}, {Path: "input.user.pin_token", Value: value.Int(12345678)}}
	rec.Trace[1].Description = `input.user.password == "hunter22secret"`
	text, clean, err := sealRecord(rec)
	errtest.Must(t, err)
	for _, secret := range []string{"hunter22secret", "12345678", "boss@example.com", "k-111111"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the record is %s, want no %q in it", text, secret)
		}
	}
	if clean.Decision != "DENY" || clean.Policy.ID != 12 || clean.Reason != "denied to [redacted] with [redacted]" {
		t.Errorf("the record is %+v, want the rest unchanged", clean)
	}
}
