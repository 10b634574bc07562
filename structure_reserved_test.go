package gatehouse

import (
	"path"
	"slices"
	"testing"
)

// dataPlaneHTTP are the packages of the data plane that speak HTTP. The others are pure.
var dataPlaneHTTP = []string{
	"internal/enforce/bodies",
	"internal/enforce/bundlesync",
	"internal/enforce/gateway",
	"internal/enforce/header",
	"internal/enforce/identity",
	"internal/enforce/judge",
	"internal/enforce/maskbody",
	"internal/enforce/metrics",
	"internal/enforce/refuse",
	"internal/enforce/relay",
	"internal/enforce/request",
	"internal/enforce/settings",
	"internal/enforce/shadow",
	"internal/enforce/mcpguard",
	"internal/enforce/controlplane",
	"internal/enforce/upstream",
	"internal/enforce/usage",
	"internal/enforce/wire",
}

// checkReserved: what only some packages may import.
func checkReserved(t *testing.T, files []source) {
	only := map[string][]string{
		"net/http":                        {"internal/blob/s3test", "internal/jwks", "internal/oci", "internal/outbound", "internal/tracing", "internal/fastpath", "internal/rest", "internal/rest/bind", "internal/rest/origin", "internal/rest/schema", "internal/rest/site", "internal/rest/resttest", "internal/api", "internal/enforce", "internal/webui", "internal/devdocs", "internal/client", "internal/cli", "internal/app", "internal/app/apptest", "bench", "cmd/gatehouse"},
		"database/sql":                    {"internal/db", "internal/db/dbtest"},
		"github.com/jackc/pgx/v5":         {"internal/db", "internal/db/listen", "internal/db/dbtest", "internal/app/apptest", "internal/pip/source", "bench"},
		"github.com/jackc/pgx/v5/pgxpool": {"internal/db", "internal/db/dbtest"},
		"modernc.org/sqlite":              {"internal/db"},
		module + "internal/rego/oracle":   {}, // no decision comes from it
	}
	for _, s := range files {
		if s.test {
			continue
		}
		for _, im := range s.imports() {
			if where, reserved := only[im]; reserved && !slices.Contains(where, s.dir) && (im != "net/http" || !slices.Contains(dataPlaneHTTP, s.dir) && path.Dir(s.dir) != "internal/api") {
				t.Errorf("%s/%s imports %s, which is for %v", s.dir, s.name, im, where)
			}
		}
	}
}
