package db

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/pause"
)

// channel is the PostgreSQL channel on which replicas announce changes.
const channel = "gatehouse"

// listener receives the announcements of other replicas, on its own connection.
type listener struct {
	cfg       *pgx.ConnConfig
	instance  string
	onMessage func(payload string) // of another replica; "" if some may have been missed
	now       func() time.Time
	log       *slog.Logger
	warned    time.Time // when the last warning was
	cancel    context.CancelFunc
	done      chan struct{}
}

// warnAgain is the time between two warnings that a listener cannot connect.
const warnAgain = time.Minute

// listen connects and starts to receive announcements.
func listen(ctx context.Context, l listener) (*listener, error) {
	c, err := l.connect(ctx)
	if err != nil {
		return nil, errors.Join(errUnavailable, err)
	}
	run, cancel := context.WithCancel(context.Background())
	l.cancel, l.done = cancel, make(chan struct{})
	go l.run(run, c)
	return &l, nil
}

func (l *listener) stop() {
	l.cancel()
	<-l.done
}

func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, l.cfg)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// run receives announcements until stop is called. If the connection is lost, it reconnects, and
// then reports that announcements may have been missed.
func (l *listener) run(ctx context.Context, c *pgx.Conn) {
	defer close(l.done)
	for c != nil {
		l.receive(ctx, c)
		_ = c.Close(context.WithoutCancel(ctx)) // the connection is lost already
		if c = l.reconnect(ctx); c != nil {
			l.onMessage("")
		}
	}
}

// reconnect connects again, with growing pauses, until it succeeds; nil: stop was called. It warns
// at most once every warnAgain, and after a warning says when it succeeded.
func (l *listener) reconnect(ctx context.Context) *pgx.Conn {
	warned := false
	wait := 50 * time.Millisecond
	for n := 1; ctx.Err() == nil; n++ {
		c, err := l.connect(ctx)
		if err == nil {
			if warned {
				l.log.Info("the database announces the changes of other replicas again", "attempts", n)
			}
			return c
		}
		if now := l.now(); ctx.Err() == nil && now.Sub(l.warned) >= warnAgain {
			l.warned, warned = now, true
			l.log.Warn("the database cannot be reached to announce the changes of other replicas, and is tried again until it answers", "attempts", n, "error", err)
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
func (l *listener) receive(ctx context.Context, c *pgx.Conn) {
	for {
		quiet, cancel := context.WithTimeout(ctx, 15*time.Second)
		n, err := c.WaitForNotification(quiet)
		silent := quiet.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			if from, payload, _ := strings.Cut(n.Payload, "\n"); from != l.instance {
				l.onMessage(payload)
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
