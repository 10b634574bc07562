package db

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is the PostgreSQL channel on which replicas announce changes.
const channel = "gatehouse"

// listener receives the announcements of other replicas, on its own connection.
type listener struct {
	cfg      *pgx.ConnConfig
	instance string
	heard    func(payload string)
	cancel   context.CancelFunc
	done     chan struct{}
}

// listen starts listening. It returns once announcements are received.
func listen(ctx context.Context, cfg *pgx.ConnConfig, instance string, heard func(string)) (*listener, error) {
	run, cancel := context.WithCancel(context.Background())
	l := &listener{cfg: cfg, instance: instance, heard: heard, cancel: cancel, done: make(chan struct{})}
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

// run listens until stopped. After a lost connection it reconnects, with growing pauses,
// and then reports that announcements may have been missed.
func (l *listener) run(ctx context.Context, c *pgx.Conn) {
	defer close(l.done)
	for {
		l.receive(ctx, c)
		_ = c.Close(context.WithoutCancel(ctx)) // lost already
		for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
			if ctx.Err() != nil {
				return
			}
			var err error
			if c, err = l.connect(ctx); err == nil {
				break
			}
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
		l.heard("")
	}
}

// receive passes on announcements until the connection fails. When nothing arrives it pings
// the server, to notice a dead network.
func (l *listener) receive(ctx context.Context, c *pgx.Conn) {
	for {
		quiet, cancel := context.WithTimeout(ctx, 15*time.Second)
		n, err := c.WaitForNotification(quiet)
		silent := quiet.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			if from, payload, _ := strings.Cut(n.Payload, "\n"); from != l.instance {
				l.heard(payload)
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
