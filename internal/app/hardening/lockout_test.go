package hardening_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestLockout checks that behind a trusted balancer, ten wrong guesses lock the pair of account and
// address. The account's owner can sign in from another address, and another account from that
// address. The audit has the client's address, which only a trusted balancer may name. The server
// bounds a flood of sign-ins from one address.
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
		t.Errorf("sign-in after ten wrong guesses = %s with Retry-After %q, want locked and 1 to 900 seconds", locked.Body, locked.Header.Get("Retry-After"))
	}
	// The server does not believe what the client writes in front of the balancer's address.
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
		t.Errorf("the audit has the locked addresses %v, want only 203.0.113.1", ips)
	}

	// The server may ask some strangers at one address to come back. Meanwhile, a person who signed
	// in before can sign in again.
	var all sync.WaitGroup
	for i := range 150 {
		all.Go(func() {
			res := login("198.51.100.1", fmt.Sprintf("stranger-%d", i), "wrong")
			if res.Status != 401 && (res.Status != 429 || res.Header.Get("Retry-After") == "") {
				t.Errorf("sign-in of a stranger = %d %s, want 401, or 429 with Retry-After", res.Status, res.Body)
			}
		})
	}
	login("203.0.113.2", "ada", apptest.Password).Want(200)
	all.Wait()
}
