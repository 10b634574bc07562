package measure

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestRevision: a build reports its commit, if it knows it.
func TestRevision(t *testing.T) {
	found := func(settings ...debug.BuildSetting) *debug.BuildInfo { return &debug.BuildInfo{Settings: settings} }
	at := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	for _, tc := range []struct {
		told string
		info *debug.BuildInfo
		want string
	}{
		{"", nil, "unknown"},
		{"", found(), "unknown"},
		{"", found(at), "abc"},
		{"", found(at, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), "abc-dirty"},
		{"def", found(at), "def"},
		{"def", nil, "def"},
	} {
		if got := revision(tc.told, tc.info); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

// TestBillsAreByTenantAndOperation: each pair of tenant and operation looks its meter up once, and
// then counts with it.
func TestBillsAreByTenantAndOperation(t *testing.T) {
	asked, counted := map[string]int{}, map[string]int{}
	at := time.Unix(1000, 0)
	m, err := New(prometheus.NewRegistry(), "test", func(tenant scope.TenantID, operation string) func(time.Time) {
		key := string(tenant) + " " + operation
		asked[key]++
		return func(began time.Time) {
			if !began.Equal(at) {
				t.Errorf("%s began at %s", key, began)
			}
			counted[key]++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	read, write := m.Prepare("read", "GET"), m.Prepare("write", "POST")
	for range 3 {
		m.Bill(m.Tenant("a"), &read, at)
		m.Bill(m.Tenant("a"), &write, at)
		m.Bill(m.Tenant("b"), &write, at)
	}
	for _, key := range []string{"a read", "a write", "b write"} {
		if asked[key] != 1 || counted[key] != 3 {
			t.Errorf("%s: asked for %d times, counted %d times", key, asked[key], counted[key])
		}
	}
	if len(asked) != 3 {
		t.Errorf("asked for %v", asked)
	}
}
