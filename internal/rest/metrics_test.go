package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestWhoIsBilled: a request is billed once to the tenant of its credential, before its answer is
// sent. Refused credentials, bouncers and internal errors are not billed.
func TestWhoIsBilled(t *testing.T) {
	bills := map[string]int{}
	g := newRig(t, func(c *Config) {
		c.Meter = func(tenant scope.TenantID, operation string) func(time.Time) {
			return func(time.Time) { bills[string(tenant)+" "+operation]++ }
		}
		known := c.Authenticate
		c.Authenticate = func(ctx context.Context, cr Credential) (scope.Scope, Principal, error) {
			if cr.APIKey == "bouncer" {
				return scope.Scope{Tenant: "t1", Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Bouncer}}, Principal{}, nil
			}
			sc, who, err := known(ctx, cr)
			if cr.TenantHint != "" && sc.Platform {
				sc.Tenant = cr.TenantHint
			}
			return sc, who, err
		}
	}, func(g *rig) {
		type none struct{}
		for _, status := range []int{204, 404, 500} {
			Raw(g.Router, Op{ID: fmt.Sprint("answer-", status), Method: http.MethodGet, Path: fmt.Sprint("/answer-", status), Reach: ReachSelf}, RawDocs{}, func(w http.ResponseWriter, _ *http.Request, _ scope.Scope) {
				w.WriteHeader(status)
				if sent := bills["t1 "+fmt.Sprint("answer-", status)]; status < 500 && sent == 0 && g.auths.Load() == 1 {
					t.Errorf("the answer %d is sent before it is billed", status)
				}
			})
		}
		Register(g.Router, Op{ID: "fails", Method: http.MethodGet, Path: "/fails", Reach: ReachSelf}, func(context.Context, scope.Scope, *none) (*none, error) {
			return nil, errors.New("broken")
		})
	})
	for _, c := range []struct{ path, key, tenant, billed string }{
		{"/answer-204", "full", "", "t1 answer-204"},
		{"/answer-404", "full", "", "t1 answer-404"},
		{"/answer-204", "person", "", "t1 answer-204"},
		{"/answer-204", "platform", "", "default answer-204"},
		{"/answer-204", "platform", "t1", "default answer-204"},
		{"/answer-204", "bouncer", "", ""},
		{"/answer-204", "unknown", "", ""},
		{"/answer-500", "full", "", ""},
		{"/fails", "full", "", ""},
		{"/nowhere", "full", "", ""},
	} {
		clear(bills)
		req := resttest.Call{Method: "GET", Path: "/v1" + c.path, Key: c.key}.Request()
		if c.tenant != "" {
			req.Header.Set("X-Tenant-ID", c.tenant)
		}
		g.Router.ServeHTTP(httptest.NewRecorder(), req)
		want := map[string]int{}
		if c.billed != "" {
			want[c.billed] = 1
		}
		if fmt.Sprint(bills) != fmt.Sprint(want) {
			t.Errorf("GET %s by %s in %q: bills %v, want %v", c.path, c.key, c.tenant, bills, want)
		}
	}
}
