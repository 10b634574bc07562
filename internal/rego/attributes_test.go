package rego

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestDataOfResources: by whatever path a control reads data.resources, it finds
// no owner_email, and with WithoutAttributes no attributes either; the rest is there.
func TestDataOfResources(t *testing.T) {
	doc, err := value.Decode([]byte(`{"id":7,"name":"pay","owner_email":"boss@canary.example","owner_team":"pay team","attributes":{"level":"canary-level","n":[1]}}`), value.Limits{})
	errtest.Must(t, err)
	other, err := value.Decode([]byte(`{"id":8,"name":"plain"}`), value.Limits{})
	errtest.Must(t, err)
	set := NewSet(SetSpec{Env: "sandbox", Resources: []target.Resource{{ID: 7, Name: "pay", Path: "/pay", Doc: doc}, {ID: 8, Name: "plain", Path: "/plain", Doc: other}}})
	paths := [][]string{nil, {"resources"}, {"resources", "7"}, {"resources", "7", "owner_email"}, {"resources", "7", "attributes"}, {"resources", "7", "attributes", "level"}, {"resources", "8"}, {"pip"}}
	for _, path := range paths {
		with, without := set.Data(path), WithoutAttributes(set).Data(path)
		for name, v := range map[string]value.Value{"all": with, "without attributes": without} {
			text := string(v.AppendJSON(nil))
			if strings.Contains(text, "owner_email") || strings.Contains(text, "canary.example") || name != "all" && (strings.Contains(text, "canary-level") || strings.Contains(text, "attributes")) {
				t.Errorf("%s at %v: %s", name, path, text)
			}
			whole := len(path) < 2 || path[1] == "7" && len(path) == 2
			if whole && (len(path) == 0 || path[0] == "resources") && !strings.Contains(text, "pay team") {
				t.Errorf("%s at %v lost the rest: %s", name, path, text)
			}
		}
	}
	if got, _ := set.Data([]string{"resources", "7", "attributes", "level"}).Str(); got != "canary-level" {
		t.Errorf("attributes are %q", got)
	}
	if got, _ := set.Resource(7).Doc.Get("owner_email").Str(); got == "" {
		t.Error("input.resource lost its owner_email")
	}
}
