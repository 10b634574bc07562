// Package metrics counts what a bouncer does, and writes it in Prometheus' text format.
package metrics

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// The words of a verdict, by which requests are counted. X-Decision and the decision log use the
// same words.
const (
	Permit      = "PERMIT"
	Deny        = "DENY"
	Mask        = "MASK"
	PassThrough = "PASS_THROUGH"
	ShadowDeny  = "SHADOW_WOULD_DENY"
	ShadowMask  = "SHADOW_WOULD_MASK"
)

// Counters are the bouncer's figures since its start.
type Counters struct {
	words [6]atomic.Uint64 // by verdict, in the order of words
	// Refused counts requests that were refused before a decision.
	Refused, failed, Panics                                atomic.Uint64
	UpstreamErrors, UpstreamTimeouts, Aborted, ClientGone  atomic.Uint64
	ToolsChanged, UnaskedBytes                             atomic.Uint64
	SlowClient, MaskFailures, TunnelsClosed, ShadowSkipped atomic.Uint64
	HostsReported, HostsWithheld                           atomic.Uint64
	LogsDropped, LogsShipped, LogsFolded                   atomic.Uint64
	BundlesActivated, BundlesRefused, SaveFailures         atomic.Uint64
	BundlesUnproven                                        atomic.Uint64

	decided, hits atomic.Uint64
	buckets       [len(bucketBounds) + 1]atomic.Uint64
	nanoseconds   atomic.Uint64
}

var words = [...]string{Permit, Deny, Mask, PassThrough, ShadowDeny, ShadowMask}

// bucketBounds are the upper bounds of the decision histogram.
var bucketBounds = [...]time.Duration{
	time.Microsecond, 5 * time.Microsecond, 20 * time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond,
	2 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond,
}

// Decisions returns the number of decisions, and how many of them came from the cache.
func (c *Counters) Decisions() (decisions, hits uint64) { return c.decided.Load(), c.hits.Load() }

// Decision counts one decision.
func (c *Counters) Decision(took time.Duration, hit bool) {
	c.decided.Add(1)
	if hit {
		c.hits.Add(1)
	}
	c.nanoseconds.Add(uint64(max(took, 0)))
	i := 0
	for i < len(bucketBounds) && took > bucketBounds[i] {
		i++
	}
	c.buckets[i].Add(1)
}

// Verdict counts the outcome of a request. failed means that there was no proper decision.
func (c *Counters) Verdict(word string, failed bool) {
	for i, w := range words {
		if w == word {
			c.words[i].Add(1)
			break
		}
	}
	if failed {
		c.failed.Add(1)
	}
}

// Requests returns the number of requests with a verdict.
func (c *Counters) Requests() (n uint64) {
	for i := range c.words {
		n += c.words[i].Load()
	}
	return n
}

// Write answers with the counters and gauges.
func (c *Counters) Write(w http.ResponseWriter, gauges []Gauge) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	c.WriteText(w, gauges)
}

// WriteText writes the counters and gauges in Prometheus' text format. They do not name any
// tenant, caller or path.
func (c *Counters) WriteText(w io.Writer, gauges []Gauge) {
	out := make([]byte, 0, 4096)
	help := func(name, kind, text string) {
		out = append(out, "# HELP gatehouse_bouncer_"+name+" "+text+"\n# TYPE gatehouse_bouncer_"+name+" "+kind+"\n"...)
	}
	line := func(name, labels string, v float64) {
		out = append(out, "gatehouse_bouncer_"+name+labels+" "...)
		out = strconv.AppendFloat(out, v, 'g', -1, 64)
		out = append(out, '\n')
	}
	help("verdicts_total", "counter", "Requests by verdict.")
	for i, word := range words {
		line("verdicts_total", `{verdict="`+word+`"}`, float64(c.words[i].Load()))
	}
	for _, m := range []struct {
		name, text string
		v          *atomic.Uint64
	}{
		{"refused_total", "Requests refused before a decision: malformed or ambiguous.", &c.Refused},
		{"failed_decisions_total", "Requests without a proper decision: no bundle, stale, evaluation error.", &c.failed},
		{"panics_total", "Panics that were contained.", &c.Panics},
		{"upstream_errors_total", "Requests for which the application could not be reached, or switched protocols unasked.", &c.UpstreamErrors},
		{"upstream_timeouts_total", "Requests that the application did not answer in time.", &c.UpstreamTimeouts},
		{"upstream_unasked_total", "Connections on which the application sent bytes that belong to no request.", &c.UnaskedBytes},
		{"aborted_answers_total", "Answers that broke off.", &c.Aborted},
		{"slow_clients_total", "Requests whose body came too slowly.", &c.SlowClient},
		{"mask_failures_total", "Answers that could not be masked and were refused.", &c.MaskFailures},
		{"mcp_tools_changed_total", "Tools of MCP servers that changed their description.", &c.ToolsChanged},
		{"tunnels_closed_total", "Open sockets closed by a new decision.", &c.TunnelsClosed},
		{"shadow_skipped_total", "Requests in shadow mode that were not decided for lack of capacity.", &c.ShadowSkipped},
		{"decision_logs_dropped_total", "Decision log events that were lost.", &c.LogsDropped},
		{"decision_logs_folded_total", "Refusals that were counted together with others instead of having events of their own.", &c.LogsFolded},
		{"decision_logs_shipped_total", "Decision log events that the control plane acknowledged.", &c.LogsShipped},
		{"hosts_reported_total", "Hosts without a resource that were reported.", &c.HostsReported},
		{"hosts_withheld_total", "Requests to further such hosts, beyond what is reported an hour.", &c.HostsWithheld},
		{"bundles_activated_total", "Bundles that became active.", &c.BundlesActivated},
		{"bundles_refused_total", "Bundles that were refused.", &c.BundlesRefused},
		{"bundles_unconfirmed_total", "Answers to polls that were not proven to be fresh.", &c.BundlesUnproven},
		{"decision_cache_hits_total", "Decisions from the cache.", &c.hits},
	} {
		help(m.name, "counter", m.text)
		line(m.name, "", float64(m.v.Load()))
	}
	help("decision_seconds", "histogram", "Duration of a decision.")
	var sum uint64
	for i, bound := range bucketBounds {
		sum += c.buckets[i].Load()
		line("decision_seconds_bucket", `{le="`+strconv.FormatFloat(bound.Seconds(), 'g', -1, 64)+`"}`, float64(sum))
	}
	sum += c.buckets[len(bucketBounds)].Load()
	line("decision_seconds_bucket", `{le="+Inf"}`, float64(sum))
	line("decision_seconds_sum", "", float64(c.nanoseconds.Load())/1e9)
	line("decision_seconds_count", "", float64(sum))

	for _, g := range gauges {
		help(g.Name, g.Kind, g.Text)
		line(g.Name, "", g.V)
	}
	_, _ = w.Write(out)
}

// Gauge is a value that is read on request.
type Gauge struct {
	Name, Kind, Text string
	V                float64
}
