package editors_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// batchSize is the number of controls of a deployment in the crash tests.
const batchSize = 12

// TestKilledDeployments (F2) checks that after kills of the server during deployments, all or none
// of the controls of each deployment are stored, and all of the acknowledged ones.
func TestKilledDeployments(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 2
	}
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		var mu sync.Mutex
		sent, acknowledged := 0, map[string]bool{}
		next := func() string { mu.Lock(); defer mu.Unlock(); sent++; return fmt.Sprintf("batch%d", sent) }
		count := func() int { mu.Lock(); defer mu.Unlock(); return len(acknowledged) }
		for round := range rounds {
			stop := make(chan struct{})
			var load sync.WaitGroup
			for range 2 {
				load.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						name := next()
						if r, err := s.Admin.Try(http.MethodPost, "/policies-as-code/deploy", apptest.Body{"files": batch(name)}); err == nil && r.Status == 200 {
							mu.Lock()
							acknowledged[name] = true
							mu.Unlock()
						}
					}
				})
			}
			want := count() + 1 + round%3
			apptest.Eventually(t, 30*time.Second, func() error {
				if n := count(); n < want {
					return fmt.Errorf("the server has acknowledged %d of %d deployments", n, want)
				}
				return nil
			})
			s.Kill()
			close(stop)
			load.Wait()
			s.Start()
		}
		controls := map[string]int{}
		for skip := 0; ; skip += 1000 {
			var page struct {
				Policies []struct {
					Name    string
					Version int
				}
			}
			s.Admin.Do(t, http.MethodGet, fmt.Sprintf("/policies?limit=1000&skip=%d", skip), nil).Want(200).Into(&page)
			for _, p := range page.Policies {
				name, _, _ := strings.Cut(p.Name, "/")
				controls[name]++
			}
			if len(page.Policies) < 1000 {
				break
			}
		}
		for name, n := range controls {
			if n != batchSize {
				t.Errorf("the deployment %s has %d of %d controls, want all or none", name, n, batchSize)
			}
		}
		for name := range acknowledged {
			if controls[name] != batchSize {
				t.Errorf("the acknowledged deployment %s is not stored", name)
			}
		}
		if v := s.Admin.Do(t, http.MethodGet, "/audit/verify", nil).Want(200).Get("valid"); v != true {
			t.Errorf("GET /audit/verify = %v, want it valid", v)
		}
		t.Logf("%d deployments sent, %d acknowledged, %d there", sent, len(acknowledged), len(controls))
	})
}

func batch(name string) []apptest.Body {
	var out []apptest.Body
	for i := range batchSize {
		out = append(out, apptest.CodeFiles(fmt.Sprintf("%s/c%d.rego", name, i), fmt.Sprintf("package %s_c%d\n\nallow if input.user.id == \"ada\"\n", name, i))...)
	}
	return out
}
