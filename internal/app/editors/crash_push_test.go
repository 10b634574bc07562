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
)

// ideRow is a deployment as the service tells it.
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

// slowTest keeps a deployment busy for a moment before it is made.
const slowTest = "package slow_test\n\ntest_slow if count([1 | some a in numbers.range(1, 60); some b in numbers.range(1, 60); a + b < 0]) == 0\n"

// pusher sends deployments of batchSize controls each, a new name each time.
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

// TestKilledPushes kills the server under deliveries of a repository and
// deployments of an editor. Of each, all controls are there afterwards or none;
// its row says which, and no row stays in progress; a delivery that comes again
// is answered, and is then there.
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
				return fmt.Errorf("%d of %d deployments", n, want)
			}
			busy := map[string]bool{}
			for _, d := range ideRows(t, s) {
				busy[d.Source] = busy[d.Source] || d.Status == "in_progress"
			}
			if !busy["service"] || !busy["editor"] {
				return fmt.Errorf("no deployment of both kinds is in progress: %v", busy)
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
		t.Errorf("the kills caught %v in progress, so they show nothing", caught)
	}
	var rows []ideRow
	apptest.Eventually(t, time.Minute, func() error {
		rows = ideRows(t, s)
		for _, d := range rows {
			if d.Status == "in_progress" {
				return fmt.Errorf("%s of %s is in progress", d.ID, d.Source)
			}
		}
		return nil
	})
	told := map[string]bool{}
	for _, d := range rows {
		if d.Status == "failed" {
			if d.Source != "editor" || !strings.Contains(d.Outcome.Message, "nothing was changed") {
				t.Errorf("a deployment of %s failed: %s", d.Source, d.Outcome.Message)
			}
			continue
		}
		for _, f := range d.Outcome.Files {
			if f.Result != "created" {
				t.Errorf("%s was %s: it was made twice", f.Path, f.Result)
			}
			name, _, _ := strings.Cut(f.Path, "/")
			told[name] = true
		}
	}
	p.compare(t, s, told)
	for name := range p.sent { // whoever has no answer sends it again
		r, err := p.deliver(s, hooked, name)
		if err != nil {
			t.Fatal(err)
		}
		var row ideRow
		if err := r.Decode(&row); err != nil || r.Status != 200 || row.Status != "completed" {
			t.Fatalf("%s again: %d %s", name, r.Status, r.Body)
		}
		told[name] = true
	}
	p.compare(t, s, told)
	t.Logf("%d deliveries and %d deployments of an editor, %d acknowledged; caught in progress: %v", len(p.sent), p.editors, len(p.acknowledged), caught)
}

// compare holds the controls that are there against the deployments that say
// that they made them.
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
			t.Errorf("%s: %d of %d controls are there, told of: %t", name, n, batchSize, told[name])
		}
	}
	for name := range told {
		if controls[name] == 0 {
			t.Errorf("%s is told of, and is not there", name)
		}
	}
	for name := range p.acknowledged {
		if controls[name] != batchSize {
			t.Errorf("%s was acknowledged and is not there", name)
		}
	}
}
