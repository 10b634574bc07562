// Package listen receives what replicas announce to each other through PostgreSQL.
package listen

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/pause"
)

// Channel is the PostgreSQL channel on which replicas announce changes. A payload is the instance
// that announces, a line end, and the message.
const Channel = "gatehouse"

// Config is what a Listener needs.
type Config struct {
	Conn *pgx.ConnConfig
	// Instance is this replica. Its own announcements are skipped.
	Instance string
	// OnMessage gets the messages of other replicas; "" if some may have been missed.
	OnMessage func(message string)
	Now       func() time.Time
	Log       *slog.Logger
}

// Listener receives the announcements of other replicas, on its own connection.
type Listener struct {
	Config

	warned time.Time // when the last warning was
	cancel context.CancelFunc
	done   chan struct{}
}

// warnAgain is the time between two warnings that a listener cannot connect.
const warnAgain = time.Minute

// Start connects and starts to receive announcements.
func Start(ctx context.Context, cfg Config) (*Listener, error) {
	l := &Listener{Config: cfg, done: make(chan struct{})}
	c, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go l.run(ctx, c)
	return l, nil
}

// Stop ends the connection, and waits until no message arrives any more.
func (l *Listener) Stop() {
	l.cancel()
	<-l.done
}

func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, l.Conn)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, "LISTEN "+Channel); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// run receives announcements until Stop is called. If the connection is lost, it reconnects, and
// then reports that announcements may have been missed.
func (l *Listener) run(ctx context.Context, c *pgx.Conn) {
	defer close(l.done)
	for c != nil {
		l.receive(ctx, c)
		_ = c.Close(context.WithoutCancel(ctx)) // the connection is lost already
		if c = l.reconnect(ctx); c != nil {
			l.OnMessage("")
		}
	}
}

// reconnect connects again, with growing pauses, until it succeeds; nil: Stop was called. It warns
// at most once every warnAgain, and after a warning says when it succeeded.
func (l *Listener) reconnect(ctx context.Context) *pgx.Conn {
	warned := false
	wait := 50 * time.Millisecond
	for n := 1; ctx.Err() == nil; n++ {
		c, err := l.connect(ctx)
		if err == nil {
			if warned {
				l.Log.Info("the connection that announces changes of other replicas is back", "attempts", n)
			}
			return c
		}
		if now := l.Now(); ctx.Err() == nil && now.Sub(l.warned) >= warnAgain {
			l.warned, warned = now, true
			l.Log.Warn("the connection that announces changes of other replicas is lost; retrying", "attempts", n, "error", err)
		}
		if !pause.For(ctx, wait) {
			break
		}
		wait = min(2*wait, 2*time.Second)
	}
	return nil
}

// receive passes on announcements until the connection fails. If nothing arrives for a while, it
// pings the server to detect a dead connection.
func (l *Listener) receive(ctx context.Context, c *pgx.Conn) {
	for {
		quiet, cancel := context.WithTimeout(ctx, 15*time.Second)
		n, err := c.WaitForNotification(quiet)
		silent := quiet.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			if from, payload, _ := strings.Cut(n.Payload, "\n"); from != l.Instance {
				l.OnMessage(payload)
			}
		case silent && !c.IsClosed():
			ping, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := c.Ping(ping)
			cancel()
			if err != nil {
				return
			}
		default:
			return
		}
	}
}
