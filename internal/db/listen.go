package db

import (
	"context"
	"errors"
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
	onMessage func(payload string)
	cancel    context.CancelFunc
	done      chan struct{}
}

// listen connects and starts to receive announcements. onMessage is called for each announcement of
// another replica, and with "" if some may have been missed.
func listen(ctx context.Context, cfg *pgx.ConnConfig, instance string, onMessage func(string)) (*listener, error) {
	run, cancel := context.WithCancel(context.Background())
	l := &listener{cfg: cfg, instance: instance, onMessage: onMessage, cancel: cancel, done: make(chan struct{})}
	c, err := l.connect(ctx)
	if err != nil {
		cancel()
		return nil, errors.Join(errUnavailable, err)
	}
	go l.run(run, c)
	return l, nil
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

// run receives announcements until stop is called. If the connection is lost, it reconnects, with
// growing pauses, and then reports that announcements may have been missed.
func (l *listener) run(ctx context.Context, c *pgx.Conn) {
	defer close(l.done)
	for {
		l.receive(ctx, c)
		_ = c.Close(context.WithoutCancel(ctx)) // the connection is lost already
		for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
			if ctx.Err() != nil {
				return
			}
			var err error
			if c, err = l.connect(ctx); err == nil {
				break
			}
			if !pause.For(ctx, wait) {
				return
			}
		}
		l.onMessage("")
	}
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
