package decisions_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestTenantWideWarning checks that each way to create a control without a resource warns that it applies
// to every request, and that there is no warning with a resource.
func TestTenantWideWarning(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	id := s.Admin.Do(t, "POST", "/resources", apptest.Body{"name": "r", "type": "api", "path": "/r", "environment": "sandbox"}).Want(201).Get("id")
	const source = "package wide\n\nallow if input.user.id == \"ada\"\n"
	create := func(extra apptest.Body) string {
		b := apptest.Body{"name": "wide", "rego_code": source}
		maps.Copy(b, extra)
		return string(s.Admin.Do(t, "POST", "/policies", b).Want(201).Body)
	}
	if got := create(nil); !strings.Contains(got, "applies to every request of sandbox") {
		t.Errorf("POST /policies without a resource = %s, want a warning", got)
	}
	if got := create(apptest.Body{"name": "narrow", "resource_id": id}); strings.Contains(got, "every request") {
		t.Errorf("POST /policies with a resource = %s, want no warning", got)
	}
	files := []apptest.Body{{"path": "wide.rego", "content": strings.Replace(source, "package wide", "package wider", 1)}}
	for _, c := range []struct {
		path string
		body apptest.Body
		wide bool
		sign string
	}{
		{"/policies-as-code/validate", apptest.Body{"files": files}, true, `"tenant_wide"`},
		{"/policies-as-code/validate", apptest.Body{"files": files, "resource_id": id}, false, `"tenant_wide"`},
		{"/policies-as-code/deploy", apptest.Body{"files": files, "dry_run": true}, true, `"tenant_wide":true`},
		{"/policies-as-code/deploy", apptest.Body{"files": files, "dry_run": true, "resource_id": id}, false, `"tenant_wide":true`},
	} {
		if got := string(s.Admin.Do(t, "POST", c.path, c.body).Want(200).Body); strings.Contains(got, c.sign) != c.wide {
			t.Errorf("POST %s of %v = %s, want a warning: %v", c.path, c.body, got, c.wide)
		}
	}
}
