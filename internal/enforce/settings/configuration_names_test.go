package settings

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
)

// TestConfigurationNames checks that the control plane accepts each member of a configuration that
// the data plane reads.
func TestConfigurationNames(t *testing.T) {
	wantKnown := func(at string, members map[string]any) {
		for _, d := range (bouncer.Draft{Name: "x", Configuration: members}).Offences() {
			if strings.Contains(d.Message, "no such member") {
				t.Errorf("%s: the control plane refuses %s: %s", at, d.Pointer, d.Message)
			}
		}
	}
	names := func(of reflect.Type) map[string]any {
		out := map[string]any{}
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out[name] = "x"
		}
		return out
	}
	wantKnown("configuration", names(reflect.TypeFor[configuration]()))
	wantKnown("identity", map[string]any{"identity": names(reflect.TypeFor[identity.Config]())})
}
