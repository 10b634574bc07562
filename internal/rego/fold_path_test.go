package rego_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// guarded returns a set with resources of several kinds of patterns.
func guarded(t testing.TB) *rego.Set {
	t.Helper()
	deny, issues := rego.Compile(rego.Meta{ID: 1, Name: "closed", Version: 1, ResourceID: 5}, "package c\n\nallow := false\n\nreason := \"closed\"\n")
	allow, more := rego.Compile(rego.Meta{ID: 2, Name: "open", Version: 1}, "package o\n\nallow := true\n\nreason := input.resource.path\n")
	if issues != nil || more != nil {
		t.Fatal(issues, more)
	}
	return rego.NewSet(rego.SetSpec{Controls: []*rego.Control{deny, allow}, Resources: []target.Resource{
		{ID: 5, Path: "/orders/**", Doc: value.Object()},
		{ID: 6, Path: "/**", Doc: value.Object()},
		{ID: 7, Path: "/files/*", Doc: value.Object()},
		{ID: 8, Path: "/raw/**", PathMatching: target.PathExact, Doc: value.Object()},
		{ID: 9, Path: "/Twins/a", Doc: value.Object()},
		{ID: 10, Path: "/twins/a", Doc: value.Object()},
		{ID: 11, Path: "/api/{id}/Secret", Doc: value.Object()},
		{ID: 12, Path: "/orders.csv", Doc: value.Object()},
		{ID: 13, Path: "/café/**", Doc: value.Object()},
		{ID: 14, Path: "/v2/deep/orders/**", Doc: value.Object()},
		{ID: 15, Path: "/two%20words/**", Doc: value.Object()},
		{ID: 16, Path: "/c++/**", Doc: value.Object()},
		{ID: 17, Path: "/\u1e61/**", Doc: value.Object()},
		{ID: 18, Path: "/\u01fb/**", Doc: value.Object()},
	}})
}

// TestSpellings: every spelling that some server reads as a path below /orders is that resource's.
// Id 0 means that the path is refused.
func TestSpellings(t *testing.T) {
	s := guarded(t)
	var cases []corpusCase
	for _, tc := range []struct {
		path    string
		id      int64
		decided string
	}{
		{"/orders/1", 5, "/orders/1"},
		{"/ORDERS/1", 5, "/orders/1"},
		{"/Orders/AbC", 5, "/orders/AbC"},
		{"/orders;x/1", 5, "/orders/1"},
		{"/orders;x=y;z/1;v=2", 5, "/orders/1"},
		{"/orders%3bx/1", 5, "/orders/1"},
		{"/orders%3B/1", 5, "/orders/1"},
		{"/orders%253Bx/1", 5, "/orders/1"},
		{"/orders./1", 5, "/orders/1"},
		{"/orders.../1", 5, "/orders/1"},
		{"/orders%20/1", 5, "/orders/1"},
		{"/orders%20.%20/1", 5, "/orders/1"},
		{"/orders%2520/1", 5, "/orders/1"},
		{"/%256frders/1", 5, "/orders/1"},
		{"/%256Frders/1", 5, "/orders/1"},
		{"/%25256frders/1", 5, "/orders/1"},
		{"/%254frders;x/1", 5, "/orders/1"},
		{"/\uff4f\uff52\uff44\uff45\uff52\uff53/1", 5, "/orders/1"},
		{"/%EF%BC%AFrders/1", 5, "/orders/1"},
		{"/%25EF%25BC%25AFrders/1", 5, "/orders/1"},
		{"/%25ef%25bc%25afrders/1", 5, "/orders/1"},
		{"/order\u017f/1", 5, "/orders/1"},
		{"/\U0001d428rders/1", 5, "/orders/1"},
		{"/\u2134rders\uff0e/1", 5, "/orders/1"},
		{"/orders\uff1bx/1", 5, "/orders/1"},
		{"/orders%2500.jpg/1", 5, "/orders/1"},
		{"/orders%253Fx/1", 5, "/orders/1"},
		{"/orders%2523x/1", 5, "/orders/1"},
		{"/orders", 5, "/orders"},
		{"/orders.json", 5, "/orders.json"},
		{"/ORDERS.XML;x", 5, "/ORDERS.XML"},
		{"/orders%2ejson", 5, "/orders.json"},
		{"/orders.", 5, "/orders"},
		{"/api/1/secret.json", 11, "/api/1/secret.json"},
		{"/orders.tar.gz", 5, "/orders.tar.gz"},
		{"/orders..json", 5, "/orders..json"},
		{"/api/1/SECRET.a.b.c", 11, "/api/1/SECRET.a.b.c"},
		{"/.orders.a.b", 6, "/.orders.a.b"},
		{"/files/a.b.c", 7, "/files/a.b.c"},
		{"/orders.csv.gz", 12, "/orders.csv.gz"},
		{"/orders.json/1", 6, "/orders.json/1"},
		{"/.orders", 6, "/.orders"},
		{"/files/a.json", 7, "/files/a.json"},
		{"/other.json", 6, "/other.json"},
		{"/v2/deep/orders.json", 14, "/v2/deep/orders.json"},
		{"/v2/deep/orders/1.json", 14, "/v2/deep/orders/1.json"},
		{"/orders.csv", 12, "/orders.csv"},
		{"/raw.json", 6, "/raw.json"},
		{"/%20orders/1", 5, "/orders/1"},
		{"/%2509orders%2509/1", 5, "/orders/1"},
		{"/caf%C3%A9/1", 13, "/caf%C3%A9/1"},
		{"/cafe%CC%81/1", 13, "/caf%C3%A9/1"},
		{"/CAFE%CC%81/1", 13, "/caf%C3%A9/1"},
		{"/caf%25C3%2589/1", 13, "/caf%C3%A9/1"},
		{"/vi%C3%AA%CC%A3t/1", 6, "/vi%C3%AA%CC%A3t/1"},
		{"/ORDERS;x", 5, "/orders"},
		{"/s%CC%87/1", 17, "/%E1%B9%A1/1"},
		{"/%C5%BF%CC%87/1", 17, "/%E1%B9%A1/1"},
		{"/\u1e9b/1", 17, "/%E1%B9%A1/1"},
		{"/a%CC%8A%CC%81/1", 18, "/%C7%BB/1"},
		{"/\uff41\u030a\u0301/1", 18, "/%C7%BB/1"},

		// Invisible characters.
		{"/or\u00adders/1", 5, "/orders/1"},
		{"/orders\u200b/1", 5, "/orders/1"},
		{"/\ufefforders/1", 5, "/orders/1"},
		{"/ORDERS%E2%80%8F/1", 5, "/orders/1"},
		{"/o%CD%8Frders/1", 5, "/orders/1"},
		{"/orders%25E2%2580%258B;x/1", 5, "/orders/1"},
		{"/orders\ufe0f/1", 5, "/orders/1"},
		{"/orders\U000e0061/1", 5, "/orders/1"},
		{"/orders\U000e0100/1", 5, "/orders/1"},
		{"/\u3164orders/1", 5, "/orders/1"},
		{"/orders\u0085/1", 5, "/orders/1"},
		{"/\u200b/orders/1", 0, ""},
		{"/x/.\u200b./orders/1", 0, ""},
		{"/x/..\u2060/orders/1", 0, ""},
		{"/files/..\u00ad/orders/1", 0, ""},
		{"/files/a\u200db", 7, "/files/a%E2%80%8Db"},
		{"/orders\u2022/1", 6, "/orders%E2%80%A2/1"},

		// Streams of NTFS, and a plus for a space.
		{"/orders::$DATA", 5, "/orders"},
		{"/orders::$DATA/1", 5, "/orders/1"},
		{"/Orders::$Index_Allocation/1", 5, "/orders/1"},
		{"/orders:$I30:$INDEX_ALLOCATION/1", 5, "/orders/1"},
		{"/orders%3A%3A%24DATA/1", 5, "/orders/1"},
		{"/orders%253a%253a$data/1", 5, "/orders/1"},
		{"/orders.::$DATA;x/1", 5, "/orders/1"},
		{"/files/a::$DATA", 7, "/files/a::$DATA"},
		{"/orders:batch/1", 6, "/orders:batch/1"},
		{"/orders:$x/1", 6, "/orders:$x/1"},
		{"/orders$:/1", 6, "/orders$:/1"},
		{"/orders+/1", 5, "/orders/1"},
		{"/+Orders.+/1", 5, "/orders/1"},
		{"/orders%2B/1", 5, "/orders/1"},
		{"/orders%252b;x/1", 5, "/orders/1"},
		{"/two+words/1", 15, "/two%20words/1"},
		{"/two%20words/1", 15, "/two%20words/1"},
		{"/TWO%2520words/1", 15, "/two%20words/1"},
		{"/files/a+b", 7, "/files/a+b"},
		{"/c++/1", 16, "/c++/1"},
		{"/+/orders/1", 0, ""},
		{"/x/..+/orders/1", 0, ""},
		{"/x/%2B..%2B/orders/1", 0, ""},
		{"/x/..::$DATA/orders/1", 0, ""},

		// A second decoding gives other segments.
		{"/orders%252f1", 0, ""},
		{"/ORDERS%252F1", 0, ""},
		{"/orders\uff0f1", 0, ""},
		{"/orders%255c1", 0, ""},
		{"/x/%252e%252e/orders/1", 0, ""},
		{"/x/..%252forders/1", 0, ""},
		{"/x/\u2025/orders/1", 0, ""},
		{"/%2e%252e/orders/1", 0, ""},
		{"/;x/orders/1", 0, ""},
		{"/%20/orders/1", 0, ""},
		{"/.../orders/1", 0, ""},
		{"/files/..%252forders", 0, ""},
		{"/;%EF%BC%8Fx/orders/1", 0, ""},
		{"/%3b%252fx/orders/1", 0, ""},

		{"/files/a%252fb", 7, "/files/a%252fb"},
		{"/files/;x", 7, "/files/;x"},
		{"/files/AC\uff0fDC", 7, "/files/AC%EF%BC%8FDC"},
		{"/files/a;v=1", 7, "/files/a"},
		{"/FILES/a", 7, "/files/a"},
		{"/other;x/A", 6, "/other/A"},
		{"/a%252fb", 6, "/a%252fb"},
		{"/ordersx/1", 6, "/ordersx/1"},
		{"/order/1", 6, "/order/1"},
		{"/", 6, "/"},

		// An application that distinguishes spellings.
		{"/raw/A;x=%3b./%252e%252e/B", 8, "/raw/A;x=%3B./%252e%252e/B"},
		{"/RAW/a", 6, "/RAW/a"},
		{"/raw;x/a", 6, "/raw/a"},
		{"/Twins/a", 9, "/Twins/a"},
		{"/twins/a", 10, "/twins/a"},
		{"/TWINS/a", 9, "/Twins/a"},
		{"/api/1/secret;a", 11, "/api/1/Secret"},
		{"/API/X/SECRET", 11, "/api/X/Secret"},
	} {
		place := s.Find(&rego.Request{Path: tc.path})
		res, path, err := place.Locate()
		var id int64
		if res != nil {
			id = res.ID
		}
		if (err != nil) != (tc.id == 0) || id != tc.id || path != tc.decided {
			t.Errorf("%q: resource %d, path %q, %v; want %d, %q", tc.path, id, path, err, tc.id, tc.decided)
		}
		d := s.Decide(context.Background(), &rego.Request{Path: tc.path, Resource: value.Object(value.Member{Key: "path", Value: value.String(tc.path)})}, rego.Options{})
		if d.Permit != (tc.id > 5) || d.Permit && d.Reason != tc.decided {
			t.Errorf("%q: permit %v, %q", tc.path, d.Permit, d.Reason)
		}
		in, err := json.Marshal(map[string]any{"resource": map[string]any{"path": tc.path}})
		errtest.Must(t, err)
		cases = append(cases, corpusCase{Input: in})
	}
	// A stock OPA matches the same resource, and sees the same path.
	data, err := bundle.Write(bundle.Spec{Set: s, Revision: "1"})
	errtest.Must(t, err)
	for i, got := range askOPA(t, apptest.OPA(t), data, cases) {
		if d := cmp.Diff(answer(t, s, cases[i].Input, nil), got); d != "" {
			t.Errorf("a stock OPA differs for %s:\n%s", cases[i].Input, d)
		}
	}
}
