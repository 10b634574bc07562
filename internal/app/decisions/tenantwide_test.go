package decisions_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestTenantWideIsSaid: wherever a control is made without a resource, the answer
// says that it applies to every request; with one it does not.
func TestTenantWideIsSaid(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	id := s.Admin.Do(t, "POST", "/resources", apptest.Body{"name": "r", "type": "api", "path": "/r", "environment": "sandbox"}).Want(201).Get("id")
	const source = "package wide\n\nallow if input.user.id == \"ada\"\n"
	create := func(extra apptest.Body) string {
		b := apptest.Body{"name": "wide", "rego_code": source}
		for k, v := range extra {
			b[k] = v
		}
		return string(s.Admin.Do(t, "POST", "/policies", b).Want(201).Body)
	}
	if got := create(nil); !strings.Contains(got, "applies to every request of sandbox") {
		t.Errorf("created without a resource: %s", got)
	}
	if got := create(apptest.Body{"name": "narrow", "resource_id": id}); strings.Contains(got, "every request") {
		t.Errorf("created with a resource: %s", got)
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
			t.Errorf("%s %v: %s", c.path, c.body, got)
		}
	}
}
