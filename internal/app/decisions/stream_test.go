package decisions_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// told is a message of the event stream.
type told struct {
	Event, ID   string
	Topic       string `json:"topic"`
	Environment string `json:"environment"`
	Object      string `json:"id"`
}

// listener reads one event stream.
type listener struct {
	header http.Header
	next   chan told // closed at the end of the stream
	seen   []told    // what until has read
	end    func()
}

// listen opens an event stream of a client; status is that of a refusal, or 200.
func listen(t *testing.T, c *apptest.Client, query, last string) (l *listener, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", c.Base+"/events/stream"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + c.Bearer, "X-API-Key": c.APIKey, "Last-Event-ID": last} {
		if value != "" && value != "Bearer " {
			req.Header.Set(name, value)
		}
	}
	for name, values := range c.Header {
		req.Header[name] = values
	}
	res, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != 200 {
		return nil, res.StatusCode
	}
	l = &listener{header: res.Header, next: make(chan told, 1000), end: func() { _ = res.Body.Close() }}
	go func() {
		defer close(l.next)
		var m told
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			name, value, _ := strings.Cut(in.Text(), ": ")
			switch name {
			case "event":
				m.Event = value
			case "id":
				m.ID = value
			case "data":
				_ = json.Unmarshal([]byte(value), &m)
			case "":
				if m.Event != "" || m.ID != "" {
					l.next <- m
				}
				m = told{}
			}
		}
	}()
	return l, 200
}

func mustListen(t *testing.T, c *apptest.Client, query, last string) *listener {
	t.Helper()
	l, status := listen(t, c, query, last)
	if l == nil {
		t.Fatalf("GET /events/stream answered %d", status)
	}
	return l
}

// until reads messages until one is of the topic and object, and gives those before.
func (l *listener) until(t *testing.T, topic, object string) (found told, before []told) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case m, open := <-l.next:
			if !open {
				t.Fatalf("the stream ended before %s %s", topic, object)
			}
			l.seen = append(l.seen, m)
			if m.Topic == topic && (object == "" || m.Object == object) {
				return m, before
			}
			before = append(before, m)
		case <-late:
			t.Fatalf("nothing of %s %s, but %v", topic, object, before)
		}
	}
}

// sees waits until there was a message of the topic.
func (l *listener) sees(t *testing.T, topic string) {
	t.Helper()
	if !slices.ContainsFunc(l.seen, func(m told) bool { return m.Topic == topic }) {
		l.until(t, topic, "")
	}
}

// over waits for the end of the stream.
func (l *listener) over(t *testing.T, why string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case _, open := <-l.next:
			if !open {
				return
			}
		case <-late:
			t.Fatalf("the stream goes on: %s", why)
		}
	}
}

// TestEventStream: a client is told what changes in its tenant, as far as it may
// read it, goes on where it was, and is told nothing once its credential has ended.
func TestEventStream(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		all := mustListen(t, a, "", "")
		if all.header.Get("Content-Type") != "text/event-stream" || all.header.Get("X-Accel-Buffering") != "no" || all.header.Get("Cache-Control") != "no-store" {
			t.Errorf("headers %v", all.header)
		}
		sandbox := mustListen(t, a, "?environment=sandbox", "")
		key := s.Key(t, a, "production", "resources:read", "decisions:read", "dashboard:read")
		bound := mustListen(t, key, "", "")

		other, _ := a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201).Get("id").(string)
		elsewhere := a.With("X-Tenant-ID", other)
		elsewhere.Do(t, "POST", "/resources", body{"name": "foreign", "type": "api", "path": "/foreign"}).Want(201)
		placed := 0
		place := func(env string) string {
			placed++
			path := fmt.Sprintf("/%s/%d", env, placed)
			return fmt.Sprint(a.With("X-Environment", env).Do(t, "POST", "/resources", body{"name": path, "type": "api", "path": path}).Want(201).ID())
		}
		live, sand := place("production"), place("sandbox")
		policy := fmt.Sprint(apptest.Activate(t, a, "open", "production", "package open\n\nallow := true\n", nil))
		all.until(t, "resources", live)
		all.until(t, "resources", sand)
		seen, _ := all.until(t, "policies", policy)
		if seen.Environment != "production" || seen.Event != "change" {
			t.Errorf("told %+v", seen)
		}
		all.sees(t, "revisions")
		if _, before := sandbox.until(t, "resources", sand); len(before) > 0 {
			for _, m := range before {
				if m.Environment == "production" {
					t.Errorf("asked for sandbox and told %+v", m)
				}
			}
		}

		apptest.Decide(t, a, "production", 20, 0)
		all.sees(t, "decisions")
		_, before := bound.until(t, "decisions", "")
		for _, m := range before {
			if m.Topic != "" && (m.Topic != "resources" || m.Environment != "production") {
				t.Errorf("a key of production that reads resources and figures is told %+v", m)
			}
		}

		// It goes on after the last message, whatever happened meanwhile.
		last := place("production")
		m, _ := all.until(t, "resources", last)
		for m.ID == "" { // the id is that of the last message of a batch
			m = <-all.next
		}
		all.end()
		a.Do(t, "POST", "/users", body{"username": "vera", "email": "vera@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
		missed := place("sandbox")
		again := mustListen(t, a, "", m.ID)
		_, before = again.until(t, "resources", missed)
		for _, b := range before {
			if b.Topic == "resources" || b.Event == "reload" {
				t.Errorf("told again of %+v", b)
			}
		}

		ended(t, s)
	})
}

// ended holds streams to the end of their credentials, and to how many may be open.
func ended(t *testing.T, s *apptest.Server) {
	t.Helper()
	a := s.Admin
	vera := s.Login(t, "vera", apptest.Password)
	streams := []*listener{}
	for range 10 {
		streams = append(streams, mustListen(t, vera, "", ""))
	}
	if _, status := listen(t, vera, "", ""); status != 429 {
		t.Errorf("the eleventh stream: %d", status)
	}
	vera.Do(t, "POST", "/auth/logout", nil).Want(200)
	for _, l := range streams {
		l.over(t, "its session has ended")
	}
	if _, status := listen(t, vera, "", ""); status != 401 {
		t.Errorf("after the session: %d", status)
	}
	if _, status := listen(t, s.Key(t, a, "sandbox", "decisions:read"), "", ""); status != 403 {
		t.Errorf("a key that may read nothing that changes: %d", status)
	}
	third, _ := a.Do(t, "POST", "/tenants", body{"name": "Third"}).Want(201).Get("id").(string)
	a.With("X-Tenant-ID", third).Do(t, "POST", "/users", body{"username": "root", "email": "root@example.com", "password": apptest.Password, "roles": []string{"admin"}}).Want(201)
	root := s.Anonymous()
	root.Bearer, _ = root.With("X-Tenant-ID", third).Do(t, "POST", "/auth/login", body{"username": "root", "password": apptest.Password}).Want(200).Get("access_token").(string)
	theirs := mustListen(t, root, "", "")
	a.Do(t, "PUT", "/tenants/"+third, body{"status": "suspended"}).Want(200)
	theirs.over(t, "its tenant is suspended")
}

// TestEventStreamReplica: what one replica changes, the clients of another are told.
func TestEventStreamReplica(t *testing.T) {
	s := apptest.StartServer(t, dbtest.Postgres)
	r := s.Replica(t)
	l := mustListen(t, r.Admin, "", "")
	id := fmt.Sprint(s.Admin.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/r"}).Want(201).ID())
	l.until(t, "resources", id)
	r.Stop()
	l.over(t, "its server has stopped")
}
