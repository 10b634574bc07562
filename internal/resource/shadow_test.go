package resource

import "testing"

// TestOverlap: two resources overlap if one request can match both.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/admin", "/admin", true},
		{"/Admin", "/admin", true},
		{"/admin", "/orders", false},
		{"/**", "/admin", true},
		{"/**", "/", true},
		{"/admin/**", "/admin", true},
		{"/admin/**", "/admin/users/{id}", true},
		{"/admin/**", "/administrators", false},
		{"/api/*/secret", "/api/v1/*", true},
		{"/api/{v}/secret", "/api/v1/public", false},
		{"/api/{v}", "/api", false},
		{"/api/{v}", "/api/**", true},
		{"/", "/", true},
		{"/", "/admin", false},
		{"/*", "/a/b", false},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got := overlap(Resource{Path: pair[0]}, Resource{Path: pair[1]}); got != c.want {
				t.Errorf("overlap of %s and %s = %v, want %v", pair[0], pair[1], got, c.want)
			}
		}
	}
	for _, c := range []struct {
		a, b []string
		want bool
	}{
		{nil, []string{"POST"}, true},
		{[]string{"GET"}, []string{"POST"}, false},
		{[]string{"GET", "POST"}, []string{"POST"}, true},
		{[]string{"HEAD"}, []string{"GET"}, true},
		{[]string{"GET"}, []string{"HEAD"}, true},
	} {
		if got := overlap(Resource{Path: "/a", Methods: c.a}, Resource{Path: "/a", Methods: c.b}); got != c.want {
			t.Errorf("overlap of the methods %v and %v = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
