package editors_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// ideRow is a deployment in the list of the service.
type ideRow struct {
	ID      string `json:"deployment_id"`
	Source  string `json:"source"`
	Status  string `json:"status"`
	Outcome struct {
		Message string `json:"message"`
		Files   []struct {
			Path   string `json:"path"`
			Result string `json:"result"`
		} `json:"files"`
	} `json:"outcome"`
}

func ideRows(t *testing.T, s *apptest.Server) []ideRow {
	t.Helper()
	var page struct{ Deployments []ideRow }
	s.Admin.Do(t, http.MethodGet, "/ide-integration/deployments?limit=1000", nil).Want(200).Into(&page)
	return page.Deployments
}

// slowTest keeps a deployment busy for a moment.
const slowTest = "package slow_test\n\ntest_slow if count([1 | some a in numbers.range(1, 60); some b in numbers.range(1, 60); a + b < 0]) == 0\n"

// pusher sends deployments of batchSize controls, each with a new name.
type pusher struct {
	mu           sync.Mutex
	sent         map[string][]byte // by name, the webhook's deliveries
	editors      int
	acknowledged map[string]bool
}

func (p *pusher) push(s *apptest.Server, hooked string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		p.mu.Lock()
		name := fmt.Sprintf("push%d", len(p.sent))
		text, _ := json.Marshal(apptest.Body{"event_type": "push", "policy_files": append(batch(name), apptest.Body{"path": name + "/slow_test.rego", "content": slowTest})})
		p.sent[name] = text
		p.mu.Unlock()
		r, err := p.deliver(s, hooked, name)
		if err != nil {
			return // the server is killed
		}
		if r.Status == 200 {
			p.acknowledge(name)
		}
	}
}

// deliver sends a delivery, the same each time.
func (p *pusher) deliver(s *apptest.Server, hooked, name string) (*apptest.Response, error) {
	p.mu.Lock()
	text := p.sent[name]
	p.mu.Unlock()
	c := s.Anonymous().With("X-Service-Signature", sign(hookSecret, text)).With("X-Delivery-Id", name)
	return c.Try(http.MethodPost, hooked, text)
}

func (p *pusher) edit(s *apptest.Server, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		p.mu.Lock()
		name := fmt.Sprintf("edit%d", p.editors)
		p.editors++
		p.mu.Unlock()
		files := append(batch(name), apptest.Body{"path": name + "/slow_test.rego", "content": slowTest})
		r, err := s.Admin.Try(http.MethodPost, "/ide-integration/editor-a", apptest.Body{
			"action": "deploy", "policy_path": files[0]["path"], "policy_content": files[0]["content"], "files": files[1:],
		})
		if err != nil {
			return
		}
		if r.Status == 200 {
			p.acknowledge(name)
		}
	}
}

func (p *pusher) acknowledge(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acknowledged[name] = true
}

func (p *pusher) count() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.acknowledged) }

// TestKilledPushes checks that after kills of the server during deliveries of a repository and
// deployments of an editor, all or none of the controls of each are stored. Its row says which, no
// row stays in progress, and a repeated delivery succeeds.
func TestKilledPushes(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			killedPushes(t, apptest.StartServer(t, backend))
		})
	}
}

func killedPushes(t *testing.T, s *apptest.Server) {
	hooked := hook(t, s, s.Admin, apptest.Body{"name": "controls", "url": "https://git.example.com/controls.git", "secret": hookSecret})
	p := &pusher{sent: map[string][]byte{}, acknowledged: map[string]bool{}}
	caught := map[string]int{} // rows that were in progress when the server was killed
	for range 3 {
		stop := make(chan struct{})
		var load sync.WaitGroup
		load.Go(func() { p.push(s, hooked, stop) })
		load.Go(func() { p.edit(s, stop) })
		want := p.count() + 2
		apptest.Eventually(t, 30*time.Second, func() error {
			if n := p.count(); n < want {
				return fmt.Errorf("the server has acknowledged %d of %d deployments", n, want)
			}
			busy := map[string]bool{}
			for _, d := range ideRows(t, s) {
				busy[d.Source] = busy[d.Source] || d.Status == "in_progress"
			}
			if !busy["service"] || !busy["editor"] {
				return fmt.Errorf("not both kinds of deployments are in progress: %v", busy)
			}
			return nil
		})
		s.Kill()
		close(stop)
		load.Wait()
		s.Start()
		for _, d := range ideRows(t, s) {
			if d.Status == "in_progress" {
				caught[d.Source]++
			}
		}
	}
	if caught["editor"] == 0 || caught["service"] == 0 {
		t.Errorf("the kills hit %v deployments in progress, want some of both kinds", caught)
	}
	var rows []ideRow
	apptest.Eventually(t, time.Minute, func() error {
		rows = ideRows(t, s)
		for _, d := range rows {
			if d.Status == "in_progress" {
				return fmt.Errorf("the deployment %s of %s is in progress", d.ID, d.Source)
			}
		}
		return nil
	})
	told := map[string]bool{}
	for _, d := range rows {
		if d.Status == "failed" {
			if d.Source != "editor" || !strings.Contains(d.Outcome.Message, "nothing was changed") {
				t.Errorf("a deployment of %s failed with %s, want only those of the editor, with no change", d.Source, d.Outcome.Message)
			}
			continue
		}
		for _, f := range d.Outcome.Files {
			if f.Result != "created" {
				t.Errorf("the control %s was %s, want created once", f.Path, f.Result)
			}
			name, _, _ := strings.Cut(f.Path, "/")
			told[name] = true
		}
	}
	p.compare(t, s, told)
	for name := range p.sent { // whoever has no answer sends it again
		r, err := p.deliver(s, hooked, name)
		errtest.Must(t, err)
		var row ideRow
		if err := r.Decode(&row); err != nil || r.Status != 200 || row.Status != "completed" {
			t.Fatalf("the repeated delivery %s = %d %s, want it completed", name, r.Status, r.Body)
		}
		told[name] = true
	}
	p.compare(t, s, told)
	t.Logf("%d deliveries and %d deployments of an editor, %d acknowledged; caught in progress: %v", len(p.sent), p.editors, len(p.acknowledged), caught)
}

// compare compares the stored controls with the deployments that say that they created them.
func (p *pusher) compare(t *testing.T, s *apptest.Server, told map[string]bool) {
	t.Helper()
	controls := map[string]int{}
	var page struct{ Policies []struct{ Name string } }
	s.Admin.Do(t, http.MethodGet, "/policies?limit=1000", nil).Want(200).Into(&page)
	for _, c := range page.Policies {
		name, _, _ := strings.Cut(c.Name, "/")
		controls[name]++
	}
	for name, n := range controls {
		if n != batchSize || !told[name] {
			t.Errorf("the deployment %s has %d of %d controls, in the list: %t, want all and listed", name, n, batchSize, told[name])
		}
	}
	for name := range told {
		if controls[name] == 0 {
			t.Errorf("the listed deployment %s is not stored", name)
		}
	}
	for name := range p.acknowledged {
		if controls[name] != batchSize {
			t.Errorf("the acknowledged deployment %s is not stored", name)
		}
	}
}
