package rego

import (
	"context"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// TestHidden: a decision knows what its reason may show that no log may hold,
// and looks no further than the control does.
func TestHidden(t *testing.T) {
	const input = `{"user":{"id":"ann","password":"hunter2","attributes":{"api_key":"key-1"}},"resource":{"type":"api","path":"/r","token":"t0k3n"},"action":{"secret":"sesame"}}`
	for source, want := range map[string]string{
		// A reason that is constant shows nothing.
		"allow if input.user.password == \"hunter2\"":                                         "[]",
		"deny if input.user.password":                                                         "[]",
		"deny contains \"no\" if input.user.password":                                         "[]",
		"default reason := \"never\"\nreason := \"no\" if input.user.password\nallow := true": "[]",
		// One that is made shows what the control reads.
		"allow := true\nreason := input.user.password":                                   "[hunter2]",
		"allow := true\nreason := sprintf(\"%v\", [input.user])":                         "[hunter2 key-1]",
		"deny contains msg if msg := input.resource.token":                               "[t0k3n]",
		"deny contains input.user.id":                                                    "[]",
		"allow := true\nreason := input.action[input.user.id]":                           "[sesame]",
		"allow := true\nreason := json.marshal(input)":                                   "[owner@x.example hunter2 sesame t0k3n key-1]",
		"allow := true\nreason := input.resource.attributes.passphrase":                  "[registered]",
		"allow := true\nreason := concat(\" \", [\"ask\", input.resource.owner_email])":  "[owner@x.example]",
		"allow := true\nreason := \"no\" if input.user.none else := input.user.password": "[hunter2]",
		// Authors may know the address by heart.
		"allow := true\nreason := \"ask owner@x.example\"": "[owner@x.example]",
		// An error quotes what it met.
		"allow if to_number(input.user.password) > 1": "[owner@x.example hunter2]",
	} {
		doc := `{"id":1,"owner_email":"owner@x.example","attributes":{"level":2}}`
		if source == "allow := true\nreason := input.resource.attributes.passphrase" {
			doc = `{"id":1,"attributes":{"passphrase":"registered"}}`
		}
		s := NewSet(SetSpec{
			Controls:  []*Control{mustCompile(t, Meta{ID: 1, Name: "quiet"}, "package a\nallow if input.none"), mustCompile(t, Meta{ID: 2, Name: "told"}, "package t\n"+source)},
			Resources: []target.Resource{{ID: 1, Type: "api", Path: "/r", Doc: valuetest.Decode(t, doc)}},
		})
		r, bad := ParseRequest(valuetest.Decode(t, input))
		if bad != nil {
			t.Fatal(bad)
		}
		opt := Options{Cache: NewCache(1 << 20)}
		for range 2 {
			d := s.Decide(context.Background(), &r, opt)
			if got := fmt.Sprint(d.ReasonSecrets(&r)); got != want || d.PolicyID != 2 {
				t.Errorf("%s: %s hidden in %q, want %s", source, got, d.Reason, want)
			}
		}
	}
}

func BenchmarkHidden(b *testing.B) {
	for name, reason := range map[string]string{"constant": `reason := "no"`, "made": `reason := sprintf("%s may not", [input.user.id])`} {
		b.Run(name, func(b *testing.B) {
			s, r := benchSet(b, "package a\ndeny if input.user.department == \"d\"\n"+reason, 1)
			d := s.Decide(context.Background(), &r, Options{})
			b.ReportAllocs()
			for b.Loop() {
				if d.ReasonSecrets(&r) != nil {
					b.Fatal("found something")
				}
			}
		})
	}
}
