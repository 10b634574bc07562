// Package app assembles the program by hand. It reads the configuration, fills in the dependencies
// of each service, starts background work, serves, and closes everything in reverse order. No other
// package depends on all parts.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/api"
	"github.com/gatehouse-dev/gatehouse/internal/tracing"
	"github.com/gatehouse-dev/gatehouse/internal/webui"
)

// shutdownGrace is how long running requests may take to finish after a stop.
const shutdownGrace = 5 * time.Second

// Serve runs the control plane until the context ends. It prints the address to out and, on the
// very first start, the administrator's password.
func Serve(ctx context.Context, cfg Config, version string, out io.Writer) error {
	if err := cfg.check(); err != nil {
		return err
	}
	log := newLogger(cfg.LogLevel, os.Stderr)
	stdlog.SetOutput(libraryLog{log})
	s, err := startServer(ctx, cfg, version, log)
	if err != nil {
		return err
	}
	tune(cfg.MemoryLimit)
	if s.generated != "" {
		fmt.Fprintf(out, "The first administrator is admin, with the password %s (it is not shown again)\n", s.generated)
	}
	fmt.Fprintf(out, "gatehouse %s serves on %s\n", version, cfg.url())
	if cfg.TLSListen != "" {
		fmt.Fprintf(out, "TLS is served on %s; %s sends its clients there\n", cfg.TLSListen, cfg.Listen)
	}
	return s.run(ctx)
}

// newLogger writes JSON lines. Callers must not log secrets.
func newLogger(level string, w io.Writer) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	return slog.New(tracing.Logs(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})))
}

// libraryLog receives what libraries write to the standard log. net/http logs unexpected bytes from
// a server, which may repeat what we sent. So everything from the first quote is omitted.
type libraryLog struct{ *slog.Logger }

// Write implements io.Writer.
func (l libraryLog) Write(line []byte) (int, error) {
	text, _, _ := strings.Cut(string(line), `"`)
	l.Warn("message of a library", "text", strings.ToValidUTF8(text[:min(len(text), 200)], "?"))
	return len(line), nil
}

// tune makes the garbage collector run less often, and limits the heap instead. Under load, that
// gave 8 to 32 % more decisions a second for some memory. It does not change GOGC and GOMEMLIMIT if
// they are set. Call it after assembly, because it also frees the memory that assembly used.
func tune(limit int64) {
	defer debug.FreeOSMemory()
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(mostPercent)
	}
}

// server is a control plane with its listeners.
type server struct {
	*parts
	api       *api.API
	console   *webui.Console
	listeners listeners
	generated string
}

// startServer assembles the server. It listens before it is ready, so that early clients wait
// instead of failing.
func startServer(ctx context.Context, cfg Config, version string, log *slog.Logger) (_ *server, err error) {
	p, err := assemble(ctx, cfg, version, log)
	if err != nil {
		return nil, err
	}
	s := &server{parts: p}
	defer func() {
		if err != nil {
			_ = p.closers.close()
		}
	}()
	if why := cfg.passwordWeakness(); why != "" {
		log.Warn("GATEHOUSE_ADMIN_PASSWORD is weak: sign in and change the administrator's password", "why", why)
	}
	if s.generated, err = p.auth.EnsureAdmin(ctx, cfg.AdminPassword); err != nil {
		return nil, err
	}
	s.console, err = webui.New(webui.About{Version: version, Database: p.stores.Health(ctx).Backend, URL: cfg.url(), Demo: cfg.Demo})
	if err != nil {
		return nil, err
	}
	if s.api, err = api.New(p.apiConfig(version, s.console)); err != nil {
		return nil, err
	}
	every(p, "kept answers", time.Hour, func(ctx context.Context) {
		if err := s.api.PurgeIdempotency(ctx); err != nil {
			log.Warn("the purge of stored answers failed", "error", err)
		}
	})
	return s, s.listen(ctx)
}

// run serves until the context ends or a part fails. Then it finishes running requests, ends
// background work, and closes everything.
func (s *server) run(ctx context.Context) error {
	ctx, stopServing := context.WithCancelCause(ctx)
	defer stopServing(nil)
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	var tasks sync.WaitGroup
	for _, t := range s.tasks {
		tasks.Go(func() {
			if err := t.run(background); err != nil && background.Err() == nil {
				stopServing(fmt.Errorf("%s: %w", t.name, err))
			}
		})
	}
	err := s.serve(ctx, func() { s.bridge.Close(); s.live.Close(); s.api.CloseSockets() })
	stopBackground()
	tasks.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	return errors.Join(err, s.closers.close())
}
