package explain

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// What an explanation costs beside the evaluation that it explains, for a
// control of three rules.
func BenchmarkExplain(b *testing.B) {
	c, issues := rego.Compile(rego.Meta{ID: 7, Name: "Payroll", Version: 3}, payroll)
	if issues != nil {
		b.Fatal(issues)
	}
	for name, text := range map[string]string{
		"allow": `{"user":{"roles":["x","clerk"]},"action":{"name":"read"},"context":{"ip":"10.1.1.1"}}`,
		"miss":  `{"user":{"roles":["x","y"]},"action":{"name":"write"},"context":{"ip":"10.1.1.1"},"resource":{"owner":"o"}}`,
		"deny":  `{"user":{"id":"o"},"amount":200,"context":{"ip":"8.8.8.8"},"resource":{"owner":"o"}}`,
	} {
		in := valuetest.Decode(b, text)
		lim := rego.Limits{Now: explainNow}
		b.Run(name+"/eval", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Eval(context.Background(), in, nil, lim)
			}
		})
		b.Run(name+"/explain", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Control(context.Background(), c, in, nil, lim)
			}
		})
		b.Run(name+"/trace", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Trace(context.Background(), c, in, nil, lim)
			}
		})
	}
}
