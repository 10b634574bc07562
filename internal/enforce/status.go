package enforce

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// statusEvery is how often the bouncer reports itself when nothing changes.
const statusEvery = 30 * time.Second

// Times of what is told of the application.
const (
	// appRest is how long after telling that it went the next such report
	// waits: an application that comes and goes must not make a stream of reports.
	appRest = time.Second
	// appProbe is how often an application that is away is tried.
	appProbe = 2 * time.Second
)

// reporter wakes the status loop.
type reporter struct {
	wake chan struct{}
	app  chan struct{} // the application went away
	lost atomic.Bool   // it was away when it was last asked, by a request or for a report
}

func newReporter() reporter {
	return reporter{wake: make(chan struct{}, 1), app: make(chan struct{}, 1)}
}

// noteAppLost notes that a request got no connection to the application. The first since
// the last report has the next one come now. That it is back the report loop finds.
func (r *reporter) noteAppLost() {
	if r.lost.Swap(true) {
		return
	}
	select {
	case r.app <- struct{}{}:
	default:
	}
}

func (r *reporter) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default: // one report is due already
	}
}

// The status report, in the shape of OPA's Status Service API; `gatehouse`
// holds what a stock OPA does not know.
type statusReport struct {
	Labels       map[string]string       `json:"labels"`
	Bundles      map[string]bundleStatus `json:"bundles"`
	DecisionLogs map[string]any          `json:"decision_logs"`
	Plugins      map[string]pluginStatus `json:"plugins"`
	Gatehouse    bouncerStatus           `json:"gatehouse"`
}

type pluginStatus struct {
	State string `json:"state"`
}

type bundleStatus struct {
	Name                     string        `json:"name"`
	ActiveRevision           string        `json:"active_revision,omitempty"`
	Type                     string        `json:"type"`
	Size                     int           `json:"size"`
	LastRequest              string        `json:"last_request,omitempty"`
	LastSuccessfulRequest    string        `json:"last_successful_request,omitempty"`
	LastSuccessfulDownload   string        `json:"last_successful_download,omitempty"`
	LastSuccessfulActivation string        `json:"last_successful_activation,omitempty"`
	Code                     string        `json:"code,omitempty"`
	Message                  string        `json:"message,omitempty"`
	HTTPCode                 json.Number   `json:"http_code,omitempty"`
	Errors                   []bundleError `json:"errors,omitempty"`
}

type bundleError struct {
	Code     string         `json:"code"`
	Message  string         `json:"message"`
	Location *errorLocation `json:"location,omitempty"`
}

type errorLocation struct {
	File string `json:"file"`
	Row  int    `json:"row"`
	Col  int    `json:"col"`
}

type bouncerStatus struct {
	Version            string  `json:"version"`
	Status             string  `json:"status"` // connected | degraded
	Mode               string  `json:"mode"`
	RolledBack         bool    `json:"rolled_back"`
	Stale              bool    `json:"stale"`
	RefusedRevision    string  `json:"refused_etag,omitempty"`
	PoliciesLoaded     int     `json:"policies_loaded"`
	RequestsPerSecond  float64 `json:"requests_per_second"`
	Requests           uint64  `json:"requests"`
	CacheHitRate       float64 `json:"cache_hit_rate"`
	DecisionCacheSize  int     `json:"decision_cache_size"`
	TargetReachable    *bool   `json:"target_app_reachable,omitempty"` // absent: there is none to try
	LogsWaiting        int64   `json:"logs_waiting"`
	LogsDropped        uint64  `json:"logs_dropped"`
	PollIntervalSecond int     `json:"poll_interval_seconds"`
	LogTrouble         string  `json:"log_trouble,omitempty"` // why the decision log cannot be written, or soon cannot
}

// reportLoop posts the status on change and now and then.
func (b *Bouncer) reportLoop(ctx context.Context) {
	tick, rest, probe := time.NewTicker(statusEvery), time.NewTimer(appRest), time.NewTimer(appProbe)
	defer tick.Stop()
	defer rest.Stop()
	defer probe.Stop()
	probe.Stop()
	var app <-chan struct{} // nil while it rests
	var lastRequests uint64
	lastAt := b.cfg.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.report.wake:
		case <-app:
			app = nil
			rest.Reset(appRest)
		case <-rest.C:
			app = b.report.app
			continue
		case <-probe.C:
			if !b.up.Reachable(ctx) {
				probe.Reset(appProbe)
				continue
			}
		}
		now, n := b.cfg.Now(), b.count.Requests()
		rate := 0.0
		if d := now.Sub(lastAt).Seconds(); d > 0 {
			rate = float64(n-lastRequests) / d
		}
		lastAt, lastRequests = now, n
		st := b.status(ctx, rate)
		lost := st.Gatehouse.TargetReachable != nil && !*st.Gatehouse.TargetReachable
		if b.report.lost.Store(lost); !lost {
			probe.Stop()
		} else {
			probe.Reset(appProbe)
		}
		body, err := json.Marshal(st)
		if err == nil {
			err = b.client.Post(ctx, "/bridge/status", body, false)
		}
		if err != nil && ctx.Err() == nil {
			b.log.DebugContext(ctx, "the status could not be reported", "error", err)
		}
	}
}

// status is the report of now.
func (b *Bouncer) status(ctx context.Context, rate float64) statusReport {
	var reachable *bool
	if b.up != nil {
		tried := b.up.Reachable(ctx)
		reachable = &tried
	}
	st := b.state.Load()
	s := b.bundles.Progress()
	stamp := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	bs := bundleStatus{
		Name: "authz", ActiveRevision: st.Revision, Type: "snapshot", Size: s.Size, LastRequest: stamp(s.Request),
		LastSuccessfulRequest: stamp(b.bundles.LastContact()), LastSuccessfulDownload: stamp(s.Download), LastSuccessfulActivation: stamp(s.Active),
	}
	plugin := "OK"
	if st.Set == nil {
		plugin = "NOT_READY"
	}
	if s.Err != nil {
		bs.Code, bs.Message = s.Err.Code, s.Err.Message
		if s.Err.HTTPCode != 0 {
			bs.HTTPCode = json.Number(strconv.Itoa(s.Err.HTTPCode))
		}
		for _, i := range s.Err.Issues {
			bs.Errors = append(bs.Errors, bundleError{Code: i.Rule, Message: i.Message, Location: &errorLocation{File: s.Err.File, Row: i.Line, Col: i.Column}})
		}
	}
	logs := map[string]any{}
	switch {
	case b.journal.Failing():
		logs["code"], logs["message"] = "decision_log_error", fmt.Sprintf("the decision log cannot be written: %d decisions are missing", b.count.LogsDropped.Load())
	case b.journal.Trouble() != "":
		logs["code"], logs["message"] = "decision_log_error", b.journal.Trouble()
	case b.shipper.Failing():
		logs["code"], logs["message"] = "decision_log_error", "the decision log cannot be delivered"
	}
	own := bouncerStatus{
		Version: b.cfg.Version, Status: "connected", Mode: st.Mode.String(), RolledBack: st.RolledBack,
		Stale: st.Set != nil && (b.bundles.SinceContact(b.cfg.Now()) > time.Hour || !b.bundles.Ready(st)), RefusedRevision: s.Refused, PoliciesLoaded: st.Controls,
		RequestsPerSecond: rate, Requests: b.count.Requests(), TargetReachable: reachable,
		LogsWaiting: b.journal.Spool.Depth(), LogsDropped: b.count.LogsDropped.Load(), PollIntervalSecond: int(b.cfg.PollWait / time.Second),
	}
	if own.LogTrouble = b.journal.Trouble(); own.LogTrouble == "" && b.journal.Failing() {
		own.LogTrouble = "decisions are missing in the decision log"
	}
	own.DecisionCacheSize = b.cache.Stats().Entries
	if n, hits := b.count.Decisions(); n > 0 {
		own.CacheHitRate = float64(hits) / float64(n)
	}
	if s.Err != nil || s.Denied || reachable != nil && !*reachable || b.journal.Failing() || b.journal.Trouble() != "" {
		own.Status = "degraded"
	}
	return statusReport{
		Labels: b.bundles.LabelMap(), Bundles: map[string]bundleStatus{"authz": bs}, DecisionLogs: logs,
		Plugins:   map[string]pluginStatus{"bundle": {plugin}, "decision_logs": {"OK"}, "status": {"OK"}},
		Gatehouse: own,
	}
}
