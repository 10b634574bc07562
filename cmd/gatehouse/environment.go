package main

import (
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gatehouse-dev/gatehouse/internal/client"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

const (
	ourPrefix = "GATEHOUSE_"
	// testPrefix is the prefix of variables that the project's own tests read.
	testPrefix = "GATEHOUSE_TEST_"
)

// warnOfEnvironment logs each variable of environ that has our prefix but is read by no command,
// with the most similar name that is. Otherwise a misspelt setting would be ignored silently. It
// does not log the value.
func warnOfEnvironment(w io.Writer, app *kong.Application, environ []string) {
	known := environmentOf(app.Node)
	rests := make([]string, len(known)) // without the common prefix, which would make all names similar
	for i, name := range known {
		rests[i] = strings.TrimPrefix(name, ourPrefix)
	}
	log := slog.New(slog.NewJSONHandler(w, nil))
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, v, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, ourPrefix) || strings.HasPrefix(name, testPrefix) || slices.Contains(known, name) || serviceLink(name, v) {
			continue
		}
		message := "this environment variable is not a setting and has no effect"
		if near := fault.Nearest(strings.TrimPrefix(name, ourPrefix), rests); near != "" {
			message += `; did you mean "` + known[slices.Index(rests, near)] + `"?`
		}
		log.Warn(message, "variable", name)
	}
}

// environmentOf returns the variables that a command and its subcommands read.
func environmentOf(n *kong.Node) []string {
	out := []string{client.SessionVariable}
	for _, f := range n.Flags {
		out = append(out, f.Envs...)
	}
	for _, p := range n.Positional {
		if p.Tag != nil {
			out = append(out, p.Tag.Envs...)
		}
	}
	for _, child := range n.Children {
		out = append(out, environmentOf(child)...)
	}
	return out
}

// serviceLink reports whether Kubernetes sets a variable for a service called gatehouse:
// GATEHOUSE_SERVICE_HOST, GATEHOUSE_PORT_8080_TCP_ADDR and so on.
func serviceLink(name, v string) bool {
	rest := strings.TrimPrefix(name, ourPrefix)
	return strings.Contains("_"+rest, "_SERVICE_HOST") || strings.Contains("_"+rest, "_SERVICE_PORT") ||
		strings.Contains("_"+rest, "_PORT_") && (strings.Contains(rest, "_TCP") || strings.Contains(rest, "_UDP")) ||
		strings.HasPrefix(v, "tcp://") || strings.HasPrefix(v, "udp://")
}
