package bundle

import (
	"bytes"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const packable = `package acme.documents

default allow := false

allow if {
	"editor" in input.user.roles
	input.resource.data_classification != "restricted"
}

deny contains "suspended" if data.pip.hr.suspended[input.user.id]
`

func TestPackedIsTheBundle(t *testing.T) {
	ctl, issues := rego.Compile(rego.Meta{ID: 1, Name: "docs", Version: 3, ResourceID: 7}, packable)
	if issues != nil {
		t.Fatal(issues)
	}
	set := rego.NewSet(rego.SetSpec{Env: "production", Controls: []*rego.Control{ctl}, Resources: []target.Resource{{ID: 7, Type: "api", Path: "/docs/*", Doc: value.Object()}}})
	meta := value.Object(value.Member{Key: "bouncer", Value: value.String("4")})
	p, err := Pack(set)
	errtest.Must(t, err)
	for _, big := range []int{1, 200_000} { // stored blocks hold 64 KiB
		meta := meta.With("filler", value.String(string(bytes.Repeat([]byte("x"), big))))
		parts, err := p.Bundle("12", meta, nil, nil)
		errtest.Must(t, err)
		got, err := readVerified(bytes.Join(parts, nil), nil)
		errtest.Must(t, err)
		if got.Revision != "12" || got.Env != "production" || len(got.Set.Controls()) != 1 || got.Meta["bouncer"] != "4" {
			t.Errorf("read %+v", got)
		}
	}
	again, err := Pack(set)
	if err != nil || again.Sum() != p.Sum() || !bytes.Equal(again.deflated, p.deflated) {
		t.Errorf("packing is not deterministic, error %v", err)
	}
	other, err := Pack(rego.NewSet(rego.SetSpec{Env: "production", Controls: []*rego.Control{ctl}}))
	if err != nil || other.Sum() == p.Sum() {
		t.Errorf("another set has the same sum, error %v", err)
	}
}

func BenchmarkPackedBundle(b *testing.B) {
	ctl, _ := rego.Compile(rego.Meta{ID: 1, Name: "docs", Version: 3}, packable)
	p, err := Pack(rego.NewSet(rego.SetSpec{Env: "production", Controls: []*rego.Control{ctl}}))
	errtest.Must(b, err)
	meta := value.Object(value.Member{Key: "bouncer", Value: value.String("4")})
	b.ReportAllocs()
	for b.Loop() {
		errtest.Must(b, errtest.Of(p.Bundle("12", meta, nil, nil)))
	}
}
