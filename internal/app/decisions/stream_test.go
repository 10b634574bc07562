package decisions_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// message is a message of the event stream.
type message struct {
	Event, ID   string
	Topic       string `json:"topic"`
	Environment string `json:"environment"`
	Object      string `json:"id"`
}

// listener reads an event stream.
type listener struct {
	header http.Header
	next   chan message // closed at the end of the stream
	seen   []message    // the messages that waitFor has read
	end    func()
}

// openStream opens an event stream. status is that of a refusal, or 200.
func openStream(t *testing.T, c *apptest.Client, query, last string) (l *listener, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", c.Base+"/events/stream"+query, nil)
	errtest.Must(t, err)
	for name, value := range map[string]string{"Authorization": "Bearer " + c.Bearer, "X-API-Key": c.APIKey, "Last-Event-ID": last} {
		if value != "" && value != "Bearer " {
			req.Header.Set(name, value)
		}
	}
	maps.Copy(req.Header, c.Header)
	res, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
	errtest.Must(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != 200 {
		return nil, res.StatusCode
	}
	l = &listener{header: res.Header, next: make(chan message, 1000), end: func() { _ = res.Body.Close() }}
	go func() {
		defer close(l.next)
		var m message
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
				m = message{}
			}
		}
	}()
	return l, 200
}

func mustOpenStream(t *testing.T, c *apptest.Client, query, last string) *listener {
	t.Helper()
	l, status := openStream(t, c, query, last)
	if l == nil {
		t.Fatalf("GET /events/stream answered %d", status)
	}
	return l
}

// waitFor reads messages until one has the topic and object, and also returns the earlier ones.
func (l *listener) waitFor(t *testing.T, topic, object string) (found message, before []message) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case m, open := <-l.next:
			if !open {
				t.Fatalf("the stream ended before a message about %s %s", topic, object)
			}
			l.seen = append(l.seen, m)
			if m.Topic == topic && (object == "" || m.Object == object) {
				return m, before
			}
			before = append(before, m)
		case <-late:
			t.Fatalf("the stream has %v, want a message about %s %s", before, topic, object)
		}
	}
}

// waitForTopic waits for a message of the topic, if there was none.
func (l *listener) waitForTopic(t *testing.T, topic string) {
	t.Helper()
	if !slices.ContainsFunc(l.seen, func(m message) bool { return m.Topic == topic }) {
		l.waitFor(t, topic, "")
	}
}

// wantEnd waits for the end of the stream.
func (l *listener) wantEnd(t *testing.T, why string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case _, open := <-l.next:
			if !open {
				return
			}
		case <-late:
			t.Fatalf("the stream goes on for a minute, although %s", why)
		}
	}
}

// TestEventStream checks that a client gets the changes in its tenant that it may read, can continue
// after its last message, and gets nothing after the end of its credential.
func TestEventStream(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		all := mustOpenStream(t, a, "", "")
		if all.header.Get("Content-Type") != "text/event-stream" || all.header.Get("X-Accel-Buffering") != "no" || all.header.Get("Cache-Control") != "no-store" {
			t.Errorf("the stream has the headers %v, want an event stream without buffering and cache", all.header)
		}
		sandbox := mustOpenStream(t, a, "?environment=sandbox", "")
		key := s.Key(t, a, "production", "resources:read", "decisions:read", "dashboard:read")
		bound := mustOpenStream(t, key, "", "")

		other := a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201).Text("id")
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
		all.waitFor(t, "resources", live)
		all.waitFor(t, "resources", sand)
		seen, _ := all.waitFor(t, "policies", policy)
		if seen.Environment != "production" || seen.Event != "change" {
			t.Errorf("the message is %+v, want a change in production", seen)
		}
		all.waitForTopic(t, "revisions")
		if _, before := sandbox.waitFor(t, "resources", sand); len(before) > 0 {
			for _, m := range before {
				if m.Environment == "production" {
					t.Errorf("the stream of sandbox has the message %+v", m)
				}
			}
		}

		apptest.Decide(t, a, "production", 20, 0)
		all.waitForTopic(t, "decisions")
		_, before := bound.waitFor(t, "decisions", "")
		for _, m := range before {
			if m.Topic != "" && (m.Topic != "resources" || m.Environment != "production") {
				t.Errorf("the stream of a key for production that may read resources has the message %+v", m)
			}
		}

		// A new stream continues after the last message.
		last := place("production")
		m, _ := all.waitFor(t, "resources", last)
		for m.ID == "" { // only the last message of a batch has an id
			m = <-all.next
		}
		all.end()
		a.Do(t, "POST", "/users", body{"username": "vera", "email": "vera@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
		missed := place("sandbox")
		again := mustOpenStream(t, a, "", m.ID)
		_, before = again.waitFor(t, "resources", missed)
		for _, b := range before {
			if b.Topic == "resources" || b.Event == "reload" {
				t.Errorf("the continued stream repeats %+v", b)
			}
		}

		checkEndedStreams(t, s)
	})
}

// checkEndedStreams checks that streams end with their credentials, and their limit for a person.
func checkEndedStreams(t *testing.T, s *apptest.Server) {
	t.Helper()
	a := s.Admin
	vera := s.Login(t, "vera", apptest.Password)
	streams := []*listener{}
	for range 10 {
		streams = append(streams, mustOpenStream(t, vera, "", ""))
	}
	if _, status := openStream(t, vera, "", ""); status != 429 {
		t.Errorf("the eleventh stream = %d, want 429", status)
	}
	vera.Do(t, "POST", "/auth/logout", nil).Want(200)
	for _, l := range streams {
		l.wantEnd(t, "its session has ended")
	}
	if _, status := openStream(t, vera, "", ""); status != 401 {
		t.Errorf("a stream after the session = %d, want 401", status)
	}
	if _, status := openStream(t, s.Key(t, a, "sandbox", "decisions:read"), "", ""); status != 403 {
		t.Errorf("a stream of a key without permissions for it = %d, want 403", status)
	}
	third := a.Do(t, "POST", "/tenants", body{"name": "Third"}).Want(201).Text("id")
	a.With("X-Tenant-ID", third).Do(t, "POST", "/users", body{"username": "root", "email": "root@example.com", "password": apptest.Password, "roles": []string{"admin"}}).Want(201)
	root := s.LoginTo(t, third, "root", apptest.Password)
	theirs := mustOpenStream(t, root, "", "")
	a.Do(t, "PUT", "/tenants/"+third, body{"status": "suspended"}).Want(200)
	theirs.wantEnd(t, "its tenant is suspended")
}

// TestEventStreamReplica checks that clients of one replica get the changes at another.
func TestEventStreamReplica(t *testing.T) {
	s := apptest.StartServer(t, dbtest.Postgres)
	r := s.Replica(t)
	l := mustOpenStream(t, r.Admin, "", "")
	id := fmt.Sprint(s.Admin.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/r"}).Want(201).ID())
	l.waitFor(t, "resources", id)
	r.Stop()
	l.wantEnd(t, "its server has stopped")
}
