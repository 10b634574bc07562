package bridge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/negotiate"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// bundleMedia is the media type by which OPA recognises a server that supports long polling.
const bundleMedia = "application/vnd.openpolicyagent.bundles"

// maxLogChunk is the largest size of a chunk of a decision log, compressed.
const maxLogChunk = 10 << 20

type bundleIn struct {
	ID          int64  `path:"bouncer_id" minimum:"1" doc:"Id of the bouncer; must be the caller's own"`
	IfNoneMatch string `header:"If-None-Match" doc:"ETags: first that of the active bundle, then those that the client does not want"`
	Prefer      string `header:"Prefer" doc:"wait=N keeps the request open for up to N seconds, at most 300, until there is another bundle"`
}

type partitionIn struct {
	Partition string `path:"partition" maxLength:"200" doc:"Any name; OPA's former partition_name"`
}

// StatusReport documents OPA's status; members beyond these are ignored.
type StatusReport struct {
	Labels       map[string]string `json:"labels,omitempty" doc:"The bouncer's labels"`
	Bundles      map[string]any    `json:"bundles,omitempty" doc:"By bundle name: active_revision, code, message, http_code, errors"`
	DecisionLogs map[string]any    `json:"decision_logs,omitempty" doc:"code, when the decision log cannot be delivered"`
	Gatehouse    map[string]any    `json:"gatehouse,omitempty" doc:"Added by a gatehouse bouncer: version, requests_per_second, cache_hit_rate, target_app_reachable"`
}

// LogEvent documents an event of OPA's decision log. It may have further members; those that the
// server understands are stored.
type LogEvent struct {
	DecisionID string         `json:"decision_id" doc:"Identifies the event when it is sent again"`
	Timestamp  time.Time      `json:"timestamp" doc:"When it was decided"`
	Path       string         `json:"path,omitempty" doc:"The rule that was queried, such as gatehouse/decision"`
	Input      map[string]any `json:"input,omitempty" doc:"The input"`
	Result     any            `json:"result,omitempty" doc:"The result; absent when undefined"`
	Custom     map[string]any `json:"custom,omitempty" doc:"Added by a gatehouse bouncer: mode, outcome, cache_hit, request_id"`
}

// bridge registers the protocols of bouncers: OPA's management protocols.
func (h *Handler) bridge(r *rest.Router) {
	tags := []string{"Bridge"}
	rest.Raw(r, rest.Op{
		ID: "bridge-bundle", Method: http.MethodGet, Path: "/bridge/bundles/{bouncer_id}", Reach: rest.ReachEnvironment, Only: rest.Bouncers, Tags: tags, Slow: true,
		Summary:     "Fetch the bouncer's bundle",
		Description: "An OPA bundle with the controls for the bouncer's resources and the tenant-wide ones. The ETag is its revision, which only grows. 304: there is no newer bundle, or a long poll timed out. A revision that the bouncer refused is not sent again.",
	},
		rest.RawDocs{Params: reflect.TypeFor[bundleIn](), Response: reflect.TypeFor[[]byte](), ResponseType: bundleMedia},
		func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
			h.answerPoll(w, req, sc, h.Bridge.Bundle)
		})
	rest.Raw(r, rest.Op{
		ID: "bridge-discovery", Method: http.MethodGet, Path: "/bridge/bundles/{bouncer_id}/discovery", Reach: rest.ReachEnvironment, Only: rest.Bouncers, Tags: tags, Slow: true,
		Summary:     "Fetch a stock OPA's configuration",
		Description: "OPA's discovery bundle: where the bundle is, and where decision logs and status go.",
	},
		rest.RawDocs{Params: reflect.TypeFor[bundleIn](), Response: reflect.TypeFor[[]byte](), ResponseType: bundleMedia},
		func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
			h.answerPoll(w, req, sc, h.Bridge.Discovery)
		})
	rest.Raw(r, rest.Op{ID: "bridge-self", Method: http.MethodGet, Path: "/bridge/self", Reach: rest.ReachEnvironment, Only: rest.Bouncers, Tags: tags, Summary: "Identify the bouncer that owns this token"},
		rest.RawDocs{Response: reflect.TypeFor[bridge.Self]()},
		func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
			me, err := h.Bridge.Self(req.Context(), sc, tokenDigest(req))
			if err != nil {
				rest.Fail(w, err)
				return
			}
			rest.WriteJSON(w, http.StatusOK, me)
		})
	rest.Raw(r, rest.Op{
		ID: "bridge-credentials", Method: http.MethodGet, Path: "/bridge/credentials", Reach: rest.ReachEnvironment, Only: rest.Bouncers, Tags: tags,
		Summary:     "Fetch the credentials for the application",
		Description: "Returns the calling bouncer's own credentials, encrypted with a key that is derived from its token. The metadata of the bundle shows the bouncer when they have changed.",
	},
		rest.RawDocs{Response: reflect.TypeFor[bridge.SealedCredentials]()},
		func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
			out, err := h.Bridge.Credentials(req.Context(), sc, bearerToken(req))
			if err != nil {
				rest.Fail(w, err)
				return
			}
			w.Header().Set("Cache-Control", "no-store")
			rest.WriteJSON(w, http.StatusOK, out)
		})
	rest.Raw(r, rest.Op{
		ID: "bridge-resources", Method: http.MethodGet, Path: "/bridge/data/resources", Reach: rest.ReachEnvironment, Tags: tags,
		Summary:     "Read the data feed data.resources",
		Description: "Registered resources with their enrichment, by id, as controls read them. A bouncer gets the resources that it protects; other callers need `resources:read` and get all resources of the environment.",
	},
		rest.RawDocs{Params: reflect.TypeFor[rest.InEnvironment](), Response: reflect.TypeFor[map[string]any]()}, h.resourceFeed)
}

// reports registers the reports of bouncers.
func (h *Handler) reports(r *rest.Router) {
	tags := []string{"Bridge"}
	logs := rest.Op{
		ID: "bridge-logs", Method: http.MethodPost, Path: "/bridge/logs", Reach: rest.ReachEnvironment, Only: rest.Bouncers, Tags: tags, MaxBody: maxLogChunk, Gzip: true, Lenient: true,
		Errors:      []int{http.StatusServiceUnavailable, http.StatusInsufficientStorage},
		Summary:     "Receive a chunk of a bouncer's decision log",
		Description: "A JSON array of events, optionally gzipped. The chunk is never refused for its content: events that cannot be read are set aside. The answer follows when the events are stored safely. An event that is sent again is recognised by its decision_id.",
	}
	docs := rest.RawDocs{Request: reflect.TypeFor[[]LogEvent](), Response: reflect.TypeFor[bridge.Intake]()}
	rest.Raw(r, logs, docs, h.takeLogs)
	logs.ID, logs.Path = "bridge-logs-partition", "/bridge/logs/{partition}"
	docs.Params = reflect.TypeFor[partitionIn]()
	rest.Raw(r, logs, docs, h.takeLogs)
	rest.Raw(r, rest.Op{
		ID: "bridge-report-hosts", Method: http.MethodPost, Path: "/bridge/discovery", Reach: rest.ReachEnvironment, Only: rest.Bouncers, Tags: tags, Lenient: true,
		Summary:     "Report hosts that no resource names",
		Description: "The first request to a host that no resource of the environment names creates a resource with auto_discovered set, classified by the heuristic. An existing resource is never changed. Limits: 100 an hour for each bouncer, and 1000 an environment that no person has classified yet. Only host names count, not addresses.",
	},
		rest.RawDocs{Request: reflect.TypeFor[bridge.Sightings](), Response: reflect.TypeFor[resource.Discovery]()}, h.takeHosts)
	rest.Raw(r, rest.Op{
		ID: "bridge-status", Method: http.MethodPost, Path: "/bridge/status", Reach: rest.ReachEnvironment, Only: rest.Bouncers, Tags: tags, Gzip: true, Lenient: true,
		Summary: "Receive a bouncer's status", Description: "OPA's status report: which revision is active, and what is wrong.",
	},
		rest.RawDocs{Request: reflect.TypeFor[StatusReport]()},
		func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
			body, err := rest.Body(w, req)
			if err == nil {
				err = h.Bridge.Status(req.Context(), sc, tokenDigest(req), body)
			}
			if err != nil {
				rest.Fail(w, err)
				return
			}
			rest.WriteBytes(w, http.StatusOK, rest.JSONMedia, []byte("{}\n"))
		})
}

// tokenDigest returns the digest of the request's credential, by which a waiting poll notices that
// its token was rotated.
func tokenDigest(req *http.Request) string { return secret.DigestOf(bearerToken(req)) }

// bearerToken returns the request's credential.
func bearerToken(req *http.Request) string {
	token := req.Header.Get("X-API-Key")
	if token == "" {
		_, token, _ = strings.Cut(req.Header.Get("Authorization"), " ")
	}
	return strings.TrimSpace(token)
}

type pollFunc func(ctx context.Context, sc scope.Scope, p bridge.Poll) (*bridge.Answer, error)

// answerPoll writes a bundle in pieces. It never uses Content-Encoding: OPA's client would
// decompress the bundle, and OPA would then fail.
func (h *Handler) answerPoll(w http.ResponseWriter, req *http.Request, sc scope.Scope, poll pollFunc) {
	id, _ := strconv.ParseInt(req.PathValue("bouncer_id"), 10, 64)
	bearer := bearerToken(req)
	a, err := poll(req.Context(), sc, bridge.Poll{
		BouncerID: id, Token: secret.DigestOf(bearer), Bearer: bearer, Tags: req.Header.Values("If-None-Match"), Wait: preferredWait(req.Header.Values("Prefer")), Remote: bundleConnection(req),
		Nonce: req.Header.Get("X-Gatehouse-Nonce"),
	})
	if err != nil {
		rest.Fail(w, err)
		return
	}
	header := w.Header()
	if a.Fresh != "" {
		header.Set("X-Gatehouse-Fresh", a.Fresh)
	}
	if a.ETag != "" {
		header.Set("ETag", a.ETag)
	}
	header["Content-Type"] = []string{bundleMedia}
	if a.Parts == nil {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(a.Size()))
	for _, part := range a.Parts {
		if _, err := w.Write(part); err != nil {
			return // the bouncer has disconnected
		}
	}
	a.Delivered()
}

// preferredWait reads wait=N from Prefer (RFC 7240), in the form that OPA sends.
func preferredWait(lines []string) time.Duration {
	for _, line := range lines {
		for part := range strings.FieldsFuncSeq(line, func(c rune) bool { return c == ';' || c == ',' || c == ' ' }) {
			if n, ok := strings.CutPrefix(part, "wait="); ok {
				if seconds, err := strconv.ParseUint(strings.Trim(n, `"`), 10, 32); err == nil {
					return min(time.Duration(seconds)*time.Second, bridge.MaxWait)
				}
			}
		}
	}
	return 0
}

// limitedBody reads a body and fails beyond its limit.
type limitedBody struct {
	in   io.Reader
	most int64
}

// Read implements io.Reader.
func (l limitedBody) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = rest.TooLarge(l.most)
	}
	return n, err
}

func (h *Handler) takeLogs(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	body := limitedBody{http.MaxBytesReader(w, req.Body, maxLogChunk), maxLogChunk}
	taken, err := h.Bridge.Logs(req.Context(), sc, tokenDigest(req), body)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	rest.WriteJSON(w, http.StatusOK, taken)
}

func (h *Handler) takeHosts(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	body, err := rest.Body(w, req)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	out, err := h.Bridge.Discover(req.Context(), sc, tokenDigest(req), body)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	rest.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) resourceFeed(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	data, err := h.Bridge.Resources(req.Context(), sc, tokenDigest(req))
	if err != nil {
		rest.Fail(w, err)
		return
	}
	w.Header().Set("ETag", data.ETag)
	if negotiate.Matches(req.Header.Values("If-None-Match"), data.ETag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	rest.WriteBytes(w, http.StatusOK, rest.JSONMedia, data.JSON)
}

// bundleConnection returns the connection of a client that handles bundles like OPA, which sends
// Prefer: modes; empty for any other client. A client like OPA polls again over the same connection
// only if it could not use the bundle. Other clients may poll at any time.
func bundleConnection(req *http.Request) string {
	for _, prefer := range req.Header.Values("Prefer") {
		if strings.Contains(prefer, "modes=") {
			return req.RemoteAddr
		}
	}
	return ""
}
