package rego_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const annotated = "# METADATA\n# custom:\n#   request_access: true\n"

// TestRequestable: which denials can be requested, in a set as in the bundle that is made of it, and
// in a stock OPA that loads the bundle.
func TestRequestable(t *testing.T) {
	opa := ""
	if !fulltest.Inner() {
		opa = apptest.OPA(t)
	}
	const allow, deny, fails = "package a\n\nallow if input.user.id == \"root\"\n", "package b\n\ndeny := \"no\"\n", "package c\n\nallow := \"x\"\n"
	for _, c := range []struct {
		what     string
		controls []string
		open     bool // the resource says so
		user     string
		want     bool
		files    bool // a request for the resource is taken
	}{
		{"nobody says so", []string{allow, deny}, false, "ada", false, false},
		{"the resource says so", []string{deny}, true, "ada", true, true},
		{"the control that denied says so", []string{allow, annotated + deny}, false, "ada", true, true},
		{"the denial is another's", []string{annotated + allow, deny}, false, "ada", false, true},
		{"no control matched", []string{annotated + allow}, false, "ada", true, true},
		{"access is granted", []string{annotated + allow}, true, "root", false, true},
		{"an error", []string{annotated + fails}, true, "ada", false, true},
		{"nobody asks", []string{annotated + deny}, true, "", false, true},
		{"the annotation is a text", []string{"# METADATA\n# custom:\n#   request_access: \"true\"\n" + deny}, false, "ada", false, false},
		{"the annotation is false", []string{"# METADATA\n# custom:\n#   request_access: false\n" + deny}, false, "ada", false, false},
		{"the annotation is of a rule", []string{"package b\n\n" + annotated + "deny := \"no\"\n"}, false, "ada", false, false},
		{"it is in a text", []string{"package b\n\ndeny := \"request_access: true\"\n"}, false, "ada", false, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			spec := rego.SetSpec{Revision: 1, Env: "sandbox"}
			for i, source := range c.controls {
				spec.Controls = append(spec.Controls, compiledControl(t, rego.Meta{ID: int64(i + 1), Name: "c", Version: 1, ResourceID: 7}, source))
			}
			doc := value.Object(value.Member{Key: "attributes", Value: value.Object(value.Member{Key: "request_access", Value: value.Bool(c.open)})})
			spec.Resources = []target.Resource{{ID: 7, Type: "api", Name: "payroll", Path: "/payroll", Doc: doc}}
			own := rego.NewSet(spec)
			packed, err := bundle.Write(bundle.Spec{Set: own, Revision: "1"})
			errtest.Must(t, err)
			read, err := readBundle(packed)
			errtest.Must(t, err)
			for where, set := range map[string]*rego.Set{"server": own, "bouncer": read.Set} {
				if got := set.Requestable(set.Resource(7)); got != c.files {
					t.Errorf("%s: requests are taken: %v", where, got)
				}
				req := rego.Request{
					User:   value.Object(value.Member{Key: "id", Value: value.String(c.user)}),
					Action: value.Object(value.Member{Key: "name", Value: value.String("read")}), ResourceID: 7,
				}
				d := set.Decide(context.Background(), &req, rego.Options{Now: time.Unix(1, 0), Deadline: time.Minute})
				hint, got := d.AccessHint(&req)
				if got != c.want || got && string(hint.AppendJSON(nil)) != `{"subject":{"id":"ada"},"action":{"name":"read"},"resource":{"id":"7"}}` {
					t.Errorf("%s: %v %s after %s", where, got, hint.AppendJSON(nil), described(d))
				}
			}
			if opa == "" {
				return
			}
			ask, err := json.Marshal(map[string]any{"user": map[string]any{"id": c.user}, "action": map[string]any{"name": "read"}, "resource": map[string]any{"id": 7}})
			errtest.Must(t, err)
			answer := askOPA(t, opa, packed, []corpusCase{{Input: ask}})[0]
			hint, got := answer["request_access"]
			text, err := json.Marshal(hint)
			if err != nil || got != c.want || got && string(text) != `{"action":{"name":"read"},"resource":{"id":"7"},"subject":{"id":"ada"}}` {
				t.Errorf("OPA: %s (%v) in %v", text, err, answer)
			}
		})
	}
}
