package faults_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestKilled (F1) checks that after ten kill -9 under load, each acknowledged resource is stored
// with its audit entry, and the log has each acknowledged decision once.
func TestKilled(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		a.Do(t, "POST", "/policies", body{
			"name": "allow all", "rego_code": "package all\n\nallow := true\n", "environment": "production", "status": "active",
		}).Want(201)
		history := &history{}
		rng := rand.New(rand.NewPCG(1, 2))
		for range rounds {
			stop := make(chan struct{})
			var load sync.WaitGroup
			for w := range 4 {
				load.Go(func() { history.write(a, w, stop) })
				load.Go(func() { history.decide(a, w, stop) })
			}
			written, decided := history.acknowledged()
			written, decided = written+5+rng.IntN(40), decided+5+rng.IntN(40)
			apptest.Eventually(t, 20*time.Second, func() error {
				if w, d := history.acknowledged(); w < written || d < decided {
					return fmt.Errorf("the server has acknowledged %d of %d writes and %d of %d decisions", w, written, d, decided)
				}
				return nil
			})
			s.Kill()
			close(stop)
			load.Wait()
			s.Start()
		}
		history.check(t, a)
		if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
			t.Errorf("the audit after %d kills = %v, want it valid", rounds, v)
		}
	})
}

// history is what the server has acknowledged to the clients.
type history struct {
	mu        sync.Mutex
	resources []int64
	decisions []string
}

func (h *history) acknowledged() (writes, decisions int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.resources), len(h.decisions)
}

func (h *history) write(c *apptest.Client, worker int, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		res, err := c.Try("POST", "/resources", body{
			"name": fmt.Sprintf("w%d-%d", worker, i), "type": "api", "path": fmt.Sprintf("/w%d/%d", worker, i), "environment": "sandbox",
		})
		if err != nil || res.Status != http.StatusCreated {
			continue
		}
		var made struct {
			ID int64 `json:"id"`
		}
		if res.Decode(&made) == nil {
			h.mu.Lock()
			h.resources = append(h.resources, made.ID)
			h.mu.Unlock()
		}
	}
}

func (h *history) decide(c *apptest.Client, worker int, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		res, err := c.Try("POST", "/decisions/evaluate", body{"user": body{"id": fmt.Sprintf("u%d", worker)}})
		if err != nil || res.Status != http.StatusOK {
			continue
		}
		var made struct {
			ID string `json:"decision_id"`
		}
		if res.Decode(&made) == nil {
			h.mu.Lock()
			h.decisions = append(h.decisions, made.ID)
			h.mu.Unlock()
		}
	}
}

// check compares the store with the history.
func (h *history) check(t *testing.T, a *apptest.Client) {
	t.Helper()
	stored := map[int64]bool{}
	for skip := 0; ; skip += 1000 {
		var page struct {
			Resources []struct {
				ID int64 `json:"id"`
			} `json:"resources"`
		}
		a.Do(t, "GET", fmt.Sprintf("/resources?limit=1000&skip=%d", skip), nil).Want(200).Into(&page)
		for _, p := range page.Resources {
			stored[p.ID] = true
		}
		if len(page.Resources) < 1000 {
			break
		}
	}
	entries := map[string]bool{}
	for cursor := ""; ; {
		var page struct {
			Events []struct {
				Type     string `json:"type"`
				ObjectID string `json:"object_id"`
			} `json:"events"`
			Next string `json:"next_cursor"`
		}
		a.Do(t, "GET", "/audit/events?limit=1000&cursor="+cursor, nil).Want(200).Into(&page)
		for _, e := range page.Events {
			if e.Type == "RESOURCE_CREATED" {
				entries[e.ObjectID] = true
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for _, id := range h.resources {
		if !stored[id] || !entries[fmt.Sprint(id)] {
			t.Errorf("the acknowledged resource %d is stored: %t, audited: %t, want both", id, stored[id], entries[fmt.Sprint(id)])
		}
	}
	if len(entries) != len(stored) {
		t.Errorf("the server has %d resources and %d audit entries, want the same", len(stored), len(entries))
	}
	h.checkDecisions(t, a)
}

// checkDecisions waits while the log still gets decisions from its spool.
func (h *history) checkDecisions(t *testing.T, a *apptest.Client) {
	t.Helper()
	var logged map[string]int
	for missing := h.decisions; len(missing) > 0; {
		apptest.Eventually(t, 20*time.Second, func() error {
			logged = loggedDecisions(t, a)
			var left []string
			for _, id := range missing {
				if logged[id] == 0 {
					left = append(left, id)
				}
			}
			if len(left) == len(missing) {
				return fmt.Errorf("%d acknowledged decisions, first %s, are missing in the log of %d, and no more come", len(left), left[0], len(logged))
			}
			missing = left
			return nil
		})
	}
	for _, id := range h.decisions {
		if logged[id] != 1 {
			t.Errorf("the log has the decision %s %d times, want once", id, logged[id])
		}
	}
	t.Logf("%d resources and %d decisions were acknowledged; none is missing", len(h.resources), len(h.decisions))
}

// loggedDecisions counts the entries of each decision in the log.
func loggedDecisions(t *testing.T, a *apptest.Client) map[string]int {
	t.Helper()
	logged := map[string]int{}
	for cursor := ""; ; {
		var page struct {
			Logs []struct {
				ID string `json:"decision_id"`
			} `json:"logs"`
			Next string `json:"next_cursor"`
		}
		a.Do(t, "GET", "/decisions/audit?limit=1000&cursor="+cursor, nil).Want(200).Into(&page)
		for _, d := range page.Logs {
			logged[d.ID]++
		}
		if cursor = page.Next; cursor == "" {
			return logged
		}
	}
}
