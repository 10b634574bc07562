package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// DevAddresses are the addresses on which `gatehouse dev` listens, besides the server's.
type DevAddresses struct {
	Sandbox     string `default:"127.0.0.1:8081" env:"GATEHOUSE_DEV_SANDBOX" help:"Address of the sandbox bouncer."`
	Production  string `default:"127.0.0.1:8082" env:"GATEHOUSE_DEV_PRODUCTION" help:"Address of the production bouncer."`
	Application string `default:"127.0.0.1:8083" env:"GATEHOUSE_DEV_APPLICATION" help:"Address of the demo application."`
}

// devState is what a later start needs, because tokens of bouncers are shown only once.
type devState struct {
	SandboxToken    string `json:"sandbox_token"`
	ProductionToken string `json:"production_token"`
}

// RunDev runs the server, a sandbox bouncer, a production bouncer, and a demo application in this
// process until the context ends. The first start creates an example; later starts keep the data.
func RunDev(ctx context.Context, cfg Config, ports DevAddresses, version string, out io.Writer) error {
	cfg.Demo = true
	cfg.StopDelay = 0 // there is no load balancer to wait for
	if err := cfg.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	password, err := devPassword(cfg)
	if err != nil {
		return err
	}
	cfg.AdminPassword = password
	logFile, err := os.OpenFile(filepath.Join(cfg.DataDir, "dev.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	log := newLogger(cfg.LogLevel, logFile)
	tune(cfg.MemoryLimit)

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	launch := func(name string, run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	s, err := startServer(ctx, cfg, version, log)
	if err != nil {
		return err
	}
	launch("server", s.run)
	err = devParts(ctx, cfg, ports, version, password, launch)
	if err == nil {
		var link string
		if link, err = s.signInLink(ctx); err != nil {
			log.Warn("the sign-in link could not be created", "error", err)
		}
		printWelcome(out, cfg, ports, version, password, link)
		<-ctx.Done()
	}
	stop(err)
	running.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// devParts creates the example and starts everything except the server.
func devParts(ctx context.Context, cfg Config, ports DevAddresses, version, password string, launch func(string, func(context.Context) error)) error {
	state, err := devSeed(ctx, cfg, ports, password)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ports.Application)
	if err != nil {
		return fmt.Errorf("demo application: %w", err)
	}
	launch("demo application", func(ctx context.Context) error {
		return rest.Serve(ctx, &http.Server{Handler: demoApplication(), ReadHeaderTimeout: 10 * time.Second}, l, time.Second, nil)
	})
	for _, b := range []struct{ name, token, listen string }{
		{"sandbox", state.SandboxToken, ports.Sandbox}, {"production", state.ProductionToken, ports.Production},
	} {
		bouncer, err := enforce.New(enforce.Config{
			URL: cfg.url(), Token: b.token, Listen: b.listen, Upstream: "http://" + ports.Application,
			DataDir: filepath.Join(cfg.DataDir, "bouncer-"+b.name), TrustedProxies: []string{"127.0.0.0/8", "::1/128"},
			Version: version, Now: clock, Entropy: rand.Reader,
		}, newLogger("warn", io.Discard))
		if err != nil {
			return fmt.Errorf("%s bouncer: %w", b.name, err)
		}
		launch(b.name+" bouncer", bouncer.Run)
		if err := awaitReady(ctx, "http://"+b.listen+"/_bouncer/ready"); err != nil {
			return fmt.Errorf("%s bouncer: %w", b.name, err)
		}
	}
	return nil
}

// devStateFile marks that the example exists. It holds what a second start needs.
const devStateFile = "dev.json"

// devPasswordFile holds the administrator's password, in the data directory.
const devPasswordFile = "admin-password"

// devPassword returns the administrator's password: the configured one, that of an earlier start,
// or a new one, which it stores for the next start.
func devPassword(cfg Config) (string, error) {
	path := filepath.Join(cfg.DataDir, devPasswordFile)
	if cfg.AdminPassword != "" {
		return cfg.AdminPassword, os.WriteFile(path, []byte(cfg.AdminPassword), 0o600)
	}
	kept, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(kept)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	password := rand.Text()
	return password, os.WriteFile(path, []byte(password), 0o600)
}

func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}

// readState reads the state of an earlier start. ok is false on the first start.
func readState(path string) (s devState, ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	err = json.Unmarshal(text, &s)
	return s, true, err
}

// linkLife is how long the printed sign-in link works.
const linkLife = 10 * time.Minute

// signInLink returns a link that signs the administrator in once, from this machine. The secret
// follows #, so that no server or log receives it. The link is empty if the build has no console.
func (s *server) signInLink(ctx context.Context) (string, error) {
	if !s.console.Built() {
		return "", nil
	}
	secret, err := s.auth.Sessions.Link(ctx, scope.DefaultTenant, "admin", linkLife)
	if err != nil {
		return "", err
	}
	return s.cfg.url() + "/login#link=" + secret, nil
}

func printWelcome(out io.Writer, cfg Config, ports DevAddresses, version, password, link string) {
	if link != "" {
		fmt.Fprintf(out, "\nOpen the console, signed in (works once, for %d minutes, on this machine):\n\n  %s\n", linkLife/time.Minute, link)
	}
	fmt.Fprintf(out, `
gatehouse %[1]s is running. Ctrl-C stops it; data and logs are in %[2]s.

  Console and API      %[3]s        (API document: %[3]s/openapi.json)
  Login                admin / %[4]s
  Sandbox bouncer      http://%[5]s   enforces the example control in front of the demo application
  Production bouncer   http://%[6]s   in shadow mode until you promote a control and enforce it

Try it:

  # HR reads a record: permitted
  curl -s -H 'X-Auth-Request-User: ada' -H 'X-Auth-Request-Groups: hr' http://%[5]s/employees/1

  # a visitor: denied, with the reason
  curl -s -H 'X-Auth-Request-User: eve' -H 'X-Auth-Request-Groups: visitor' http://%[5]s/employees/1

  # staff read the same record: ssn and salary are masked
  curl -s -H 'X-Auth-Request-User: ben' -H 'X-Auth-Request-Groups: staff' http://%[5]s/employees/1

Next: the tour in README.md, from "Sign in" on.
`, version, cfg.DataDir, cfg.url(), password, ports.Sandbox, ports.Production)
}
