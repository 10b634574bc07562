package hardening_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestLockout: behind a balancer that is trusted, ten wrong guesses lock the pair
// of account and address, and nobody else: neither the account's owner at another
// address nor another account at that one. The audit has the client's address,
// which only a trusted balancer may name. A flood from one address is bounded.
func TestLockout(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_TRUSTED_PROXIES=127.0.0.0/8, 2001:db8::1")
	for _, name := range []string{"ada", "bea"} {
		s.Admin.Do(t, "POST", "/users", body{"username": name, "email": name + "@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
	}
	login := func(from, name, password string) *apptest.Response {
		t.Helper()
		return s.Anonymous().With("X-Forwarded-For", from).Do(t, "POST", "/auth/login", body{"username": name, "password": password})
	}
	for range 10 {
		login("203.0.113.1", "ada", "wrong").Want(401)
	}
	locked := login("203.0.113.1", "ada", apptest.Password).Want(429)
	after, err := strconv.Atoi(locked.Header.Get("Retry-After"))
	if locked.Get("error") != "locked" || err != nil || after < 1 || after > 15*60 {
		t.Errorf("locked: %s, Retry-After %q", locked.Body, locked.Header.Get("Retry-After"))
	}
	// What the client writes in front of what the balancer adds is not believed.
	login("198.51.100.9, 203.0.113.1", "ada", apptest.Password).Want(429)
	login("203.0.113.1:4711", "ada", apptest.Password).Want(429)
	login("203.0.113.1, 127.0.0.1", "ada", apptest.Password).Want(429)
	login("203.0.113.2", "ada", apptest.Password).Want(200)
	login("203.0.113.1", "bea", apptest.Password).Want(200)

	var ips []string
	for _, e := range s.Admin.Do(t, "GET", "/audit/events?type=ACCOUNT_LOCKED", nil).Want(200).Get("events").([]any) {
		ips = append(ips, fmt.Sprint(e.(map[string]any)["event_context"].(map[string]any)["ip_address"]))
	}
	if fmt.Sprint(ips) != "[203.0.113.1]" {
		t.Errorf("locked out, by the audit: %v", ips)
	}

	// A crowd of strangers at one address: some are told to come back, nothing
	// fails, and meanwhile somebody who signed in before does so.
	var all sync.WaitGroup
	for i := range 150 {
		all.Go(func() {
			res := login("198.51.100.1", fmt.Sprintf("stranger-%d", i), "wrong")
			if res.Status != 401 && (res.Status != 429 || res.Header.Get("Retry-After") == "") {
				t.Errorf("one of a crowd: %d %s", res.Status, res.Body)
			}
		})
	}
	login("203.0.113.2", "ada", apptest.Password).Want(200)
	all.Wait()
}
