package measure

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
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
			t.Errorf("revision of %+v = %s, want %s", tc, got, tc.want)
		}
	}
}

// TestBillsAreByTenantAndOperation: each pair of tenant and operation looks its meter up once, and
// then counts with it.
func TestBillsAreByTenantAndOperation(t *testing.T) {
	lookups, counted := map[string]int{}, map[string]int{}
	at := time.Unix(1000, 0)
	m, err := New(prometheus.NewRegistry(), "test", func(tenant scope.TenantID, operation string) func(time.Time) {
		key := string(tenant) + " " + operation
		lookups[key]++
		return func(began time.Time) {
			if !began.Equal(at) {
				t.Errorf("%s begins at %s, want %s", key, began, at)
			}
			counted[key]++
		}
	})
	errtest.Must(t, err)
	read, write := m.Prepare("read", "GET"), m.Prepare("write", "POST")
	for range 3 {
		m.Bill(m.Tenant("a"), &read, at)
		m.Bill(m.Tenant("a"), &write, at)
		m.Bill(m.Tenant("b"), &write, at)
	}
	for _, key := range []string{"a read", "a write", "b write"} {
		if lookups[key] != 1 || counted[key] != 3 {
			t.Errorf("%s: looked up %d times and counted %d times, want 1 and 3", key, lookups[key], counted[key])
		}
	}
	if len(lookups) != 3 {
		t.Errorf("meters looked up = %v, want 3", lookups)
	}
}
