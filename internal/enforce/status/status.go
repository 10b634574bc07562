// Package status reports the status of the bouncer to the control plane, in the shape of
// OPA's Status Service API.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bundlesync"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/journal"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// statusEvery is the interval of reports when nothing changes.
const statusEvery = 30 * time.Second

// Intervals of reports about the application.
const (
	// AppRest is the shortest time between two reports that the application is unreachable,
	// so that an unstable application does not cause a flood of reports.
	AppRest = time.Second
	// AppProbe is how often the bouncer tries an unreachable application.
	AppProbe = 2 * time.Second
)

// Signals cause a report before it is due.
type Signals struct {
	wake chan struct{}
	app  chan struct{} // the application became unreachable
	Lost atomic.Bool   // the application was unreachable when a request or a report last tried it
}

// NewSignals returns signals that have not fired.
func NewSignals() *Signals {
	return &Signals{wake: make(chan struct{}, 1), app: make(chan struct{}, 1)}
}

// NoteAppLost records that a request got no connection to the application. The first call
// since the last report causes a report now. Run detects when the application is back.
func (s *Signals) NoteAppLost() {
	if s.Lost.Swap(true) {
		return
	}
	select {
	case s.app <- struct{}{}:
	default:
	}
}

// Wake causes a report now.
func (s *Signals) Wake() {
	select {
	case s.wake <- struct{}{}:
	default: // a report is due already
	}
}

// Reporter reports the status of the bouncer to the control plane.
type Reporter struct {
	Signals  *Signals
	Up       *upstream.Upstream // nil: there is no application
	State    *atomic.Pointer[settings.State]
	Bundles  *bundlesync.Syncer
	Journal  *journal.Journal
	Shipper  *controlplane.Shipper
	Client   *controlplane.Client
	Cache    *rego.Cache
	Count    *metrics.Counters
	Log      *slog.Logger
	Now      func() time.Time
	Version  string
	PollWait time.Duration
}

// Report has the shape of OPA's Status Service API; `gatehouse` holds what a stock
// OPA does not have.
type Report struct {
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
	TargetReachable    *bool   `json:"target_app_reachable,omitempty"` // absent: there is no application to try
	LogsWaiting        int64   `json:"logs_waiting"`
	LogsDropped        uint64  `json:"logs_dropped"`
	PollIntervalSecond int     `json:"poll_interval_seconds"`
	LogTrouble         string  `json:"log_trouble,omitempty"` // why the decision log cannot be written, or soon cannot
}

// Run reports the status when it changes, and at intervals.
func (r *Reporter) Run(ctx context.Context) {
	tick, rest, probe := time.NewTicker(statusEvery), time.NewTimer(AppRest), time.NewTimer(AppProbe)
	defer tick.Stop()
	defer rest.Stop()
	defer probe.Stop()
	probe.Stop()
	var app <-chan struct{} // nil while AppRest runs
	var lastRequests uint64
	lastAt := r.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.Signals.wake:
		case <-app:
			app = nil
			rest.Reset(AppRest)
		case <-rest.C:
			app = r.Signals.app
			continue
		case <-probe.C:
			if !r.Up.Reachable(ctx) {
				probe.Reset(AppProbe)
				continue
			}
		}
		now, n := r.Now(), r.Count.Requests()
		rate := 0.0
		if d := now.Sub(lastAt).Seconds(); d > 0 {
			rate = float64(n-lastRequests) / d
		}
		lastAt, lastRequests = now, n
		st := r.Status(ctx, rate)
		lost := st.Gatehouse.TargetReachable != nil && !*st.Gatehouse.TargetReachable
		if r.Signals.Lost.Store(lost); !lost {
			probe.Stop()
		} else {
			probe.Reset(AppProbe)
		}
		body, err := json.Marshal(st)
		if err == nil {
			err = r.Client.Post(ctx, "/bridge/status", body, false)
		}
		if err != nil && ctx.Err() == nil {
			r.Log.DebugContext(ctx, "the status could not be reported", "error", err)
		}
	}
}

// Status returns the current report. rate is in requests per second.
func (r *Reporter) Status(ctx context.Context, rate float64) Report {
	var reachable *bool
	if r.Up != nil {
		tried := r.Up.Reachable(ctx)
		reachable = &tried
	}
	st := r.State.Load()
	s := r.Bundles.Progress()
	stamp := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	bs := bundleStatus{
		Name: "authz", ActiveRevision: st.Revision, Type: "snapshot", Size: s.Size, LastRequest: stamp(s.Request),
		LastSuccessfulRequest: stamp(r.Bundles.LastContact()), LastSuccessfulDownload: stamp(s.Download), LastSuccessfulActivation: stamp(s.Active),
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
	case r.Journal.Failing():
		logs["code"], logs["message"] = "decision_log_error", fmt.Sprintf("the decision log cannot be written: %d decisions are missing", r.Count.LogsDropped.Load())
	case r.Journal.Trouble() != "":
		logs["code"], logs["message"] = "decision_log_error", r.Journal.Trouble()
	case r.Shipper.Failing():
		logs["code"], logs["message"] = "decision_log_error", "the decision log cannot be delivered"
	}
	own := bouncerStatus{
		Version: r.Version, Status: "connected", Mode: st.Mode.String(), RolledBack: st.RolledBack,
		Stale: st.Set != nil && (r.Bundles.SinceContact(r.Now()) > time.Hour || !r.Bundles.Ready(st)), RefusedRevision: s.Refused, PoliciesLoaded: st.Controls,
		RequestsPerSecond: rate, Requests: r.Count.Requests(), TargetReachable: reachable,
		LogsWaiting: r.Journal.Spool.Depth(), LogsDropped: r.Count.LogsDropped.Load(), PollIntervalSecond: int(r.PollWait / time.Second),
	}
	if own.LogTrouble = r.Journal.Trouble(); own.LogTrouble == "" && r.Journal.Failing() {
		own.LogTrouble = "decisions are missing in the decision log"
	}
	own.DecisionCacheSize = r.Cache.Stats().Entries
	if n, hits := r.Count.Decisions(); n > 0 {
		own.CacheHitRate = float64(hits) / float64(n)
	}
	if s.Err != nil || s.Denied || reachable != nil && !*reachable || r.Journal.Failing() || r.Journal.Trouble() != "" {
		own.Status = "degraded"
	}
	return Report{
		Labels: r.Bundles.LabelMap(), Bundles: map[string]bundleStatus{"authz": bs}, DecisionLogs: logs,
		Plugins:   map[string]pluginStatus{"bundle": {plugin}, "decision_logs": {"OK"}, "status": {"OK"}},
		Gatehouse: own,
	}
}
