package bridge

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// statusBody is the part of OPA's status (its Status Service API) that we use. The rest of the 60
// KB is OPA's metrics. Our own bouncer adds `gatehouse`.
type statusBody struct {
	Labels       map[string]string          `json:"labels"`
	Bundles      map[string]statusBundle    `json:"bundles"`
	Discovery    statusBundle               `json:"discovery"`
	DecisionLogs statusLogs                 `json:"decision_logs"`
	Plugins      map[string]json.RawMessage `json:"plugins"`
	Gatehouse    *statusOwn                 `json:"gatehouse"`
}

type statusBundle struct {
	ActiveRevision string        `json:"active_revision"`
	Code           string        `json:"code"`
	Message        string        `json:"message"`
	HTTPCode       json.Number   `json:"http_code"`
	Errors         []statusError `json:"errors"`
}

type statusError struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Location struct {
		File string `json:"file"`
		Row  int    `json:"row"`
	} `json:"location"`
}

type statusLogs struct {
	Code string `json:"code"`
}

// statusOwn is the member `gatehouse` in the status of our own bouncer.
type statusOwn struct {
	Version           string  `json:"version"`
	Status            string  `json:"status"`
	RefusedETag       string  `json:"refused_etag"`
	PoliciesLoaded    int64   `json:"policies_loaded"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	CacheHitRate      float64 `json:"cache_hit_rate"`
	DecisionCacheSize int64   `json:"decision_cache_size"`
	TargetReachable   *bool   `json:"target_app_reachable"`
	LogsDropped       int64   `json:"logs_dropped"`
	PollSeconds       int     `json:"poll_interval_seconds"`
	Stale             bool    `json:"stale"`
	LogTrouble        string  `json:"log_trouble"`
}

// report is the relevant part of a bouncer's last status.
type report struct {
	bundle, logs, other string // problems; empty: none
	trouble             string // the one that causes an alert
	dropped             int64
}

// bundleName is the name of a bouncer's bundle in our configuration.
const bundleName = "authz"

// Status processes a bouncer's status report. It returns BadRequest for a body that is not a
// status.
func (s *Service) Status(ctx context.Context, sc scope.Scope, token string, body []byte) error {
	f, d, err := s.bouncerState(ctx, sc, token)
	if err != nil {
		return err
	}
	var st statusBody
	if err := json.Unmarshal(body, &st); err != nil {
		return fault.New(fault.BadRequest, "invalid_status", "this is not a status report")
	}
	e := activity{seen: s.cfg.Now()}
	if v := st.Labels["version"]; v != "" {
		e.figures.Version = &v
	}
	if own := st.Gatehouse; own != nil {
		e.reported = true
		if own.PollSeconds > 0 {
			e.interval = time.Duration(own.PollSeconds) * time.Second
		}
		e.figures = bouncer.Figures{
			RequestsPerSecond: &own.RequestsPerSecond, CacheHitRate: &own.CacheHitRate, TargetAppReachable: own.TargetReachable,
			PolicyCacheSize: &own.PoliciesLoaded, DecisionCacheSize: &own.DecisionCacheSize,
		}
		if own.Version != "" {
			e.figures.Version = &own.Version
		}
	}
	d.applyStatus(&st, &e, s.cfg.Now())
	s.activity.add(f.tenant, d, e)
	return nil
}

// applyStatus stores a status, and adds what changed to e.
func (bs *bouncerState) applyStatus(st *statusBody, e *activity, now time.Time) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b, has := st.Bundles[bundleName]
	if !has && len(st.Bundles) == 1 {
		for _, b = range st.Bundles {
			has = true
		}
	}
	cur := int64(0)
	if bs.target != nil {
		cur = bs.target.revision
	}
	active, _ := strconv.ParseInt(b.ActiveRevision, 10, 64)
	failed := b.Code != "" || len(b.Errors) > 0
	switch {
	case !has || cur == 0:
	case active == cur:
		bs.setActive(cur, e)
	case active > 0 && active < cur && active != bs.active:
		bs.active, e.activated = active, active
	}
	// A bundle that could not be fetched was not refused. One with invalid content was. If there is
	// only a message, the connection may have failed, so the bundle is sent again after a while.
	if has && failed && cur != 0 && active != cur && b.HTTPCode == "" {
		why := refusals(b)
		switch {
		case len(b.Errors) > 0 || refusedTag(st) == cur:
			bs.refuse(now, e)
			e.refusals = why
		case bs.sentTo != "":
			bs.suspected = now
			e.refused, e.refusals = cur, why
			if bs.active == cur { // in any case, the bouncer does not run it now
				bs.active = 0
			}
		}
	}
	bs.report = report{other: problemOf(st, bs.report.dropped), dropped: droppedOf(st)}
	bs.report.trouble = alertReason(st)
	if st.DecisionLogs.Code != "" {
		bs.report.logs = "it cannot deliver its decision log"
	}
	switch {
	case active == cur: // the connection failed, and this status arrived over it
	case failed && b.HTTPCode != "":
		bs.report.bundle = "it cannot fetch its bundle: HTTP " + b.HTTPCode.String()
	case failed:
		bs.report.bundle = "it refuses its bundle: " + clip(b.Message, 300)
	case !has && st.Discovery.Code != "": // so it cannot know the location of its bundle
		bs.report.bundle = "it refuses its configuration: " + clip(st.Discovery.Message, 300)
	}
}

// alertReason returns the reason for an alert; empty: there is none.
func alertReason(st *statusBody) string {
	switch own := st.Gatehouse; {
	case own == nil:
		return ""
	case own.LogTrouble != "":
		return clip(own.LogTrouble, 300)
	case own.Stale:
		return workingStale
	}
	return ""
}

// workingStale describes a bouncer whose bundle was not confirmed for too long.
const workingStale = "it uses an old bundle"

func refusedTag(st *statusBody) int64 {
	if st.Gatehouse == nil || st.Gatehouse.RefusedETag == "" {
		return -1
	}
	return parseTags([]string{st.Gatehouse.RefusedETag})[0]
}

func droppedOf(st *statusBody) int64 {
	if st.Gatehouse == nil {
		return 0
	}
	return st.Gatehouse.LogsDropped
}

// problemOf describes a bouncer's problems, except those of its bundle.
func problemOf(st *statusBody, droppedBefore int64) string {
	switch {
	case droppedOf(st) > droppedBefore:
		return "it dropped decision log events"
	case st.Gatehouse != nil && st.Gatehouse.TargetReachable != nil && !*st.Gatehouse.TargetReachable:
		return "it cannot reach its application"
	case st.Gatehouse != nil && st.Gatehouse.Stale:
		return workingStale
	}
	return ""
}

// controlFile matches a control in a bundle, as OPA names it in errors.
var controlFile = regexp.MustCompile(`gatehouse/(?:controls|outcomes)/c(\d+)\.rego$`)

// ownControl matches a control in the errors of our own bouncer.
var ownControl = regexp.MustCompile(`^control (\d+)\b(?:.*?line (\d+))?`)

const maxRefusals = 20

func refusals(b statusBundle) []bouncer.Refusal {
	var out []bouncer.Refusal
	for _, e := range b.Errors[:min(len(b.Errors), maxRefusals)] {
		r := bouncer.Refusal{File: clip(e.Location.File, 300), Line: e.Location.Row, Message: clip(e.Message, 1000)}
		if m := controlFile.FindStringSubmatch(e.Location.File); m != nil {
			r.PolicyID, _ = strconv.ParseInt(m[1], 10, 64)
		}
		if m := ownControl.FindStringSubmatch(b.Message); m != nil && r.PolicyID == 0 {
			r.PolicyID, _ = strconv.ParseInt(m[1], 10, 64)
		}
		out = append(out, r)
	}
	if len(out) > 0 {
		return out
	}
	r := bouncer.Refusal{Message: clip(b.Message, 1000)}
	if r.Message == "" {
		r.Message = "the bouncer refused the bundle"
	}
	if m := ownControl.FindStringSubmatch(b.Message); m != nil {
		r.PolicyID, _ = strconv.ParseInt(m[1], 10, 64)
		r.Line, _ = strconv.Atoi(m[2])
	}
	return []bouncer.Refusal{r}
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most]
}
