package origin_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rest/origin"
)

// TestWantsPage: browsers get a page, and clients of the API get the error in its own form.
func TestWantsPage(t *testing.T) {
	for _, x := range []struct {
		accept []string
		want   bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"*/*"}, false},
		{[]string{"text/*"}, false},
		{[]string{"application/json"}, false},
		{[]string{"application/json, text/html"}, false},
		{[]string{"application/json, text/html;q=0.9"}, false},
		{[]string{"text/html;q=0"}, false},
		{[]string{"text/html;q=x"}, false},
		{[]string{"text/htmlx"}, false},
		{[]string{"text/html"}, true},
		{[]string{"TEXT/HTML; charset=utf-8"}, true},
		{[]string{"application/json;q=0.5, text/html;q=0.6"}, true},
		{[]string{"*/*;q=0.1", "application/xhtml+xml"}, true},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"}, true},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, true},
	} {
		if got := origin.WantsPage(x.accept); got != x.want {
			t.Errorf("WantsPage(%q) = %v, want %v", x.accept, got, x.want)
		}
	}
}
