package db_test

import (
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// outage is the clock and the log of a store that loses its database.
type outage struct {
	seconds atomic.Int64
	reads   chan string // of the clock: one for each failed attempt to connect
	lines   chan string // of the log
}

func (o *outage) now() time.Time {
	select {
	case o.reads <- "":
	default: // nobody counts
	}
	return time.Unix(o.seconds.Load(), 0)
}

// Write implements io.Writer.
func (o *outage) Write(line []byte) (int, error) {
	o.lines <- string(line)
	return len(line), nil
}

// awaitAttempt returns after another attempt to connect has failed, and was logged if need be.
func (o *outage) awaitAttempt(t *testing.T) {
	t.Helper()
	for len(o.reads) > 0 {
		<-o.reads
	}
	wait(t, o.reads)
	wait(t, o.reads) // the first is over
}

// wantSilence fails the test if the log has another line.
func (o *outage) wantSilence(t *testing.T, when string) {
	t.Helper()
	if len(o.lines) > 0 {
		t.Errorf("%s, the log says %s", when, <-o.lines)
	}
}

// TestWarnsOfLostAnnouncements: while the announcements of other replicas cannot be received, the
// log says so at most once a minute. It says once that they arrive again.
func TestWarnsOfLostAnnouncements(t *testing.T) {
	t.Parallel()
	o := &outage{reads: make(chan string, 1000), lines: make(chan string, 1000)}
	cfg := dbtest.Config(t, dbtest.Postgres)
	cfg.Now, cfg.Logger = o.now, slog.New(slog.NewTextHandler(o, nil))
	c := dbtest.OpenConfig(t, cfg)
	notified := make(chan string, 10)
	c.Watch(func(id scope.TenantID, name string) { notified <- string(id) + "/" + name })
	u, err := url.Parse(cfg.URL)
	errtest.Must(t, err)
	name, server := strings.TrimPrefix(u.Path, "/"), dbtest.Server(t)
	cut := func(allow string) {
		t.Helper()
		admin(t, server, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS "+allow, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+name+"'")
	}
	wantLine := func(part string) {
		t.Helper()
		if line := wait(t, o.lines); !strings.Contains(line, part) {
			t.Errorf("the log says %s, want %s", line, part)
		}
	}
	wantRestored := func() {
		t.Helper()
		if got := wait(t, notified); got != "/" {
			t.Errorf("the notification is %q, want / for changes that may have been missed", got)
		}
	}

	cut("false")
	wantLine(`level=WARN msg="the connection that announces changes of other replicas is lost`)
	o.seconds.Add(59)
	o.awaitAttempt(t)
	o.wantSilence(t, "within a minute")
	o.seconds.Add(1)
	wantLine("level=WARN")
	cut("true")
	wantRestored()
	wantLine(`level=INFO msg="the connection that announces changes of other replicas is back"`)
	cut("true") // another loss within the minute, which ends at once
	wantRestored()
	o.wantSilence(t, "after all")
}
