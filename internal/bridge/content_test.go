package bridge

import (
	"crypto/sha256"
	"reflect"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The digest of a resource covers every field that the matcher uses. Bouncers get no new bundle for
// changes of other fields.
func TestResourceDigestCoversEveryField(t *testing.T) {
	digest := func(r target.Resource) [sha256.Size]byte {
		h := sha256.New()
		writeResource(h, &r)
		return [sha256.Size]byte(h.Sum(nil))
	}
	doc := value.Object(value.Member{Key: "id", Value: value.Int(1)})
	plain := digest(target.Resource{ID: 1, Doc: doc})
	for i, f := range reflect.VisibleFields(reflect.TypeFor[target.Resource]()) {
		if f.Tag.Get("json") == "-" { // derived from the other fields
			continue
		}
		r := target.Resource{ID: 1, Doc: doc}
		switch at := reflect.ValueOf(&r).Elem().Field(i).Addr().Interface().(type) {
		case *int64:
			*at = 2
		case *string:
			*at = "x"
		case *bool:
			*at = true
		case *[]string:
			*at = []string{"x"}
		case *value.Value:
			*at = value.Object(value.Member{Key: "id", Value: value.Int(2)})
		default:
			t.Fatalf("%s has a type that this test does not set", f.Name)
		}
		if digest(r) == plain {
			t.Errorf("a change of %s does not change the digest", f.Name)
		}
	}
}
