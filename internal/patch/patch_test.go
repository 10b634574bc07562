package patch

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

type body struct {
	ID   Field[int64]    `json:"id,omitzero"`
	Kind Field[string]   `json:"kind,omitzero" enum:"api,tool"`
	Tags Field[[]string] `json:"tags,omitzero"`
}

func TestThreeStates(t *testing.T) {
	var b body
	errtest.Must(t, json.Unmarshal([]byte(`{"id":null,"kind":"api"}`), &b))
	id := new(int64)
	b.ID.ApplyPointer(&id)
	if id != nil || !b.ID.Null {
		t.Errorf("null left %v", id)
	}
	kind, tags := "tool", []string{"kept"}
	b.Kind.Apply(&kind)
	b.Tags.Apply(&tags)
	if kind != "api" || len(tags) != 1 {
		t.Errorf("kind %q, tags %v", kind, tags)
	}
	Assign(&kind, nil)
	if kind != "api" {
		t.Errorf("a member that was not sent changed kind to %q", kind)
	}
	other := "tool"
	if Assign(&kind, &other); kind != "tool" {
		t.Errorf("kind %q after a sent member", kind)
	}
	out, err := json.Marshal(b)
	if err != nil || string(out) != `{"id":null,"kind":"api"}` {
		t.Errorf("%s, %v", out, err)
	}
}

func TestSchemaTakesTags(t *testing.T) {
	r := huma.NewMapRegistry("#/s/", huma.DefaultSchemaNamer)
	s := r.Schema(reflect.TypeFor[body](), false, "")
	kind := s.Properties["kind"]
	if kind.Type != "string" || !kind.Nullable || len(kind.Enum) != 2 || len(s.Required) != 0 {
		t.Errorf("kind: %+v, required %v", kind, s.Required)
	}
	check := func(doc string) int {
		var v any
		errtest.Must(t, json.Unmarshal([]byte(doc), &v))
		res := &huma.ValidateResult{}
		huma.Validate(r, s, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, v, res)
		return len(res.Errors)
	}
	for doc, want := range map[string]int{
		`{}`: 0, `{"kind":null,"id":null,"tags":null}`: 0, `{"kind":"x"}`: 1, `{"id":"x","tags":[1]}`: 2,
	} {
		if got := check(doc); got != want {
			t.Errorf("%s: %d offences, want %d", doc, got, want)
		}
	}
}
