package editors_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestRepositorySync checks that a manual sync deploys the head of the branch and names the commit,
// and the file and line of what cannot be deployed.
func TestRepositorySync(t *testing.T) {
	apptest.Inner(t)
	t.Parallel()
	g := newGitHost(t)
	s := apptest.StartServer(t, dbtest.SQLite, g.env()...)
	first := g.commit(map[string]string{"controls/orders.rego": "package orders\n\nallow if input.user.id == \"ada\"\n", "elsewhere/no.rego": "no Rego"})
	made := s.Admin.Do(t, "POST", "/ide-integration/repositories", body{"name": "mine", "url": g.url, "secret": hookSecret, "path": "controls"}).Want(201)
	at := fmt.Sprintf("/ide-integration/repositories/%d", made.ID())
	sync := func(at string) *apptest.Response {
		t.Helper()
		id := fmt.Sprint(s.Admin.Do(t, "POST", at+"/sync", nil).Want(202).Get("deployment_id"))
		var d *apptest.Response
		apptest.Eventually(t, time.Minute, func() error {
			d = s.Admin.Do(t, "GET", "/ide-integration/deployments/"+id, nil).Want(200)
			if d.Get("status") == "in_progress" {
				return errors.New("the sync runs")
			}
			return nil
		})
		return d
	}
	d := sync(at)
	if d.Get("status") != "completed" || d.Get("commit_hash") != first || d.Get("repository_id") != made.Get("id") {
		t.Fatalf("the first sync = %s, want it completed with the commit", d.Body)
	}
	if names := policyNames(t, s); !strings.Contains(names["controls/orders"], "ada") || len(names) != 1 {
		t.Fatalf("the controls after the sync are %v, want orders for ada", names)
	}
	second := g.commit(map[string]string{"controls/orders.rego": "package orders\n\nallow if input.user.id = = \"bob\"\n"})
	d = sync(at)
	if d.Get("status") != "failed" || d.Get("commit_hash") != second || !strings.Contains(string(d.Body), `"line":3`) || !strings.Contains(string(d.Body), "controls/orders.rego") {
		t.Errorf("the sync of a wrong control = %s, want the file and the line", d.Body)
	}
	if names := policyNames(t, s); !strings.Contains(names["controls/orders"], "ada") {
		t.Errorf("the controls after a failed sync are %v, want them unchanged", names)
	}
	s.Admin.Do(t, "PUT", at, body{"branch": "gone"}).Want(200)
	if d = sync(at); d.Get("status") != "failed" || !strings.Contains(string(d.Body), "has no such branch") {
		t.Errorf("the sync of an unknown branch = %s, want a failure", d.Body)
	}
	s.Admin.Do(t, "POST", "/ide-integration/repositories/999999/sync", nil).Want(404)
	for repository, total := range map[any]string{made.Get("id"): "3", 999999: "0"} {
		if list := s.Admin.Do(t, "GET", fmt.Sprintf("/ide-integration/deployments?repository_id=%v", repository), nil).Want(200); fmt.Sprint(list.Get("total")) != total {
			t.Errorf("the deployments of the repository %v = %s, want their number", repository, list.Body)
		}
	}
}
