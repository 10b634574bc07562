package app

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

const referencePath = "../../docs/configuration.md"

// TestConfigurationReference: docs/configuration.md is what the configuration structs generate.
func TestConfigurationReference(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# Configuration\n\nGenerated from the program (`make docs`). Each setting is an environment variable and a flag of the command; `--config FILE` reads a JSON file\n")
	b.WriteString("whose members are named like the flags. Flags override environment variables, which override the file.\n")
	b.WriteString("A variable that begins with `GATEHOUSE_` and that no command reads causes a warning when a server or bouncer starts, with the closest known name.\n")
	section(&b, "Server", "`gatehouse server`, `gatehouse dev`, and the operator's commands", reflect.TypeFor[Config]())
	section(&b, "Bouncer", "`gatehouse bouncer`", reflect.TypeFor[BouncerConfig]())
	section(&b, "Development", "`gatehouse dev`, beside the server's", reflect.TypeFor[DevAddresses]())
	if *update {
		errtest.Must(t, os.WriteFile(referencePath, b.Bytes(), 0o644))
		return
	}
	have, err := os.ReadFile(referencePath)
	errtest.Must(t, err)
	if !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s differs from the generated text; run: make docs", referencePath)
	}
}

func section(b *bytes.Buffer, title, commands string, of reflect.Type) {
	fmt.Fprintf(b, "\n## %s\n\nFor %s.\n\n| Environment | Default | What it does |\n|---|---|---|\n", title, commands)
	for f := range of.Fields() {
		def := f.Tag.Get("default")
		if def != "" {
			def = "`" + def + "`"
		}
		help := f.Tag.Get("help")
		if values := f.Tag.Get("enum"); values != "" && !strings.Contains(help, ":") {
			help += " One of " + strings.ReplaceAll(values, ",", ", ") + "."
		}
		if f.Tag.Get("required") != "" || strings.Contains(string(f.Tag), "required:") {
			help += " Required."
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.Tag.Get("env"), def, strings.ReplaceAll(help, "|", "\\|"))
	}
}

// TestConfigCheck: the error of a setting that cannot be names the setting and shows no password.
func TestConfigCheck(t *testing.T) {
	good := Config{Listen: "127.0.0.1:0", DataDir: t.TempDir(), Demo: true, SimulationDeadline: 30 * time.Second, SpoolBytes: minSpoolBytes, SessionIdle: time.Hour, SessionLife: 12 * time.Hour, DomainInterval: 24 * time.Hour}
	errtest.Must(t, good.check())
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"listen":      {func(c *Config) { c.Listen = "nowhere" }, "GATEHOUSE_LISTEN"},
		"data dir":    {func(c *Config) { c.DataDir = "" }, "GATEHOUSE_DATA_DIR"},
		"database":    {func(c *Config) { c.DatabaseURL = "mysql://root:hunter2@db/x" }, "GATEHOUSE_DATABASE_URL"},
		"redis":       {func(c *Config) { c.RedisURL = "http://x" }, "GATEHOUSE_REDIS_URL"},
		"no key":      {func(c *Config) { c.Demo = false }, "NOTIFICATION_ENCRYPTION_KEY"},
		"a short key": {func(c *Config) { c.EncryptionKey = "c2hvcnQ=" }, "NOTIFICATION_ENCRYPTION_KEY"},
		"targets":     {func(c *Config) { c.AllowTargets = []string{"10.0.0.0"} }, "GATEHOUSE_ALLOW_TARGETS"},
		"rate limit":  {func(c *Config) { c.RateLimit = "12x" }, "GATEHOUSE_RATE_LIMIT"},
		"domains":     {func(c *Config) { c.DomainInterval = 0 }, "GATEHOUSE_DOMAIN_INTERVAL"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			c.change(&bad)
			err := bad.check()
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("Check gives %v, want an error that names %s", err, c.says)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
}

// newServer is a server of the demo that accepts no connections, and what closes it.
func newServer(t *testing.T, password string, log io.Writer) (*server, func()) {
	t.Helper()
	cfg := Config{
		Listen: "127.0.0.1:0", DataDir: t.TempDir(), Demo: true, SimulationDeadline: 30 * time.Second,
		AuditSync: "interval", DecisionCache: "on", AdminPassword: password,
	}
	s, err := startServer(t.Context(), cfg, "test", slog.New(slog.NewTextHandler(log, nil)))
	errtest.Must(t, err)
	return s, func() {
		if err := errors.Join(s.listeners.plain.Close(), s.closers.close()); err != nil {
			t.Error(err)
		}
	}
}

// TestWeakAdministrator: a weak first password is accepted, with a warning.
func TestWeakAdministrator(t *testing.T) {
	fulltest.Only(t)
	for password, weak := range map[string]bool{"hunter2": true, "admin": true, "eight or more": false} {
		var log bytes.Buffer
		_, stop := newServer(t, password, &log)
		stop()
		if text := log.String(); strings.Contains(text, "GATEHOUSE_ADMIN_PASSWORD is weak") != weak || strings.Contains(text, "hunter2") {
			t.Errorf("password %q, weak %v: the log is\n%s", password, weak, text)
		}
	}
}
