package events

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/live"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// times are the waiting times of a stream.
type times struct {
	check     time.Duration // interval of the check of the credential
	heartbeat time.Duration // the longest silence of the stream
	patience  time.Duration // how long a client may take to read what was sent
}

var ordinaryTimes = times{check: time.Second, heartbeat: 15 * time.Second, patience: 10 * time.Second}

// Change is the data of a message of the stream.
type Change struct {
	Topic       string    `json:"topic" enum:"decisions,policies,libraries,resources,bouncers,revisions,replays,deployments,users,api_keys,tenant,anomalies,repositories,scenarios,webhooks,agents,notifications,telemetry" doc:"What changed. decisions: the decision log or the figures of the dashboard"`
	Environment scope.Env `json:"environment,omitempty" enum:"sandbox,production" doc:"Environment of the change; absent: it belongs to no single one"`
	ID          string    `json:"id,omitempty" doc:"Id of the object that changed, as text; absent: the list changed"`
	Revision    int64     `json:"revision" doc:"Changes whenever the state of the topic changes"`
}

type streamIn struct {
	rest.InEnvironment
	LastEventID string `header:"Last-Event-ID" maxLength:"500" doc:"Id of the last message received; the stream continues after it. EventSource sends it by itself"`
}

// stream registers the stream of changes.
func (h *Handler) stream(r *rest.Router) {
	rest.Raw(r, rest.Op{
		ID: "event-stream", Method: http.MethodGet, Path: "/events/stream", Reach: rest.ReachEnvironment, Tags: []string{"Events"}, Slow: true, Unattended: true,
		Errors:      []int{http.StatusForbidden, http.StatusTooManyRequests},
		Summary:     "Stream changes",
		Description: "Server-sent events for EventSource. A `change` message names what changed; read it with its own operation. A `reload` message means that more changed than is listed: read everything again. Each credential receives only what it may read, in one environment or in both. `decisions` comes at most once every 2 seconds. A comment every 15 seconds keeps the connection open. The stream does not extend a browser's session. It ends with its credential, its tenant and the server; a client that stops reading is disconnected. One person or key may have 10 open, a tenant 500.",
	},
		rest.RawDocs{Params: reflect.TypeFor[streamIn](), Response: reflect.TypeFor[Change](), ResponseType: "text/event-stream"}, h.serveStream)
}

func (h *Handler) serveStream(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	credential, err := rest.CredentialOf(w, req)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	credential.Idle = true // no person needs to be active
	st, err := h.Live.Open(req.Context(), sc, req.Header.Get("Last-Event-ID"))
	if err != nil {
		rest.Fail(w, err)
		return
	}
	defer st.Close()
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no") // or nginx would buffer messages
	out := &writer{w: w, control: http.NewResponseController(w), now: h.Ticks, patience: h.waitTimes().patience}
	fmt.Fprintf(&out.text, "retry: 2000\nid: %s\n\n", st.Position())
	if out.flush() == nil {
		h.follow(req.Context(), st, out, credential, sc)
	}
}

// follow writes changes until the client, its credential or the server ends.
func (h *Handler) follow(ctx context.Context, st *live.Stream, out *writer, credential rest.Credential, sc scope.Scope) {
	waits := h.waitTimes()
	look, beat := time.NewTicker(waits.check), time.NewTimer(waits.heartbeat)
	defer look.Stop()
	defer beat.Stop()
	for {
		silent := false
		select {
		case <-ctx.Done():
			return
		case <-st.Done():
			return
		case <-st.Ready():
		case <-look.C:
		case <-beat.C:
			silent = true
		}
		var err error
		if sc, err = h.Authenticate.Recheck(ctx, credential, sc); err != nil {
			return
		}
		m, any := st.Take(sc)
		switch {
		case any:
			if err := out.message(m); err != nil {
				h.Log.Error("a message of the event stream", "request_id", sc.RequestID, "error", err)
				return
			}
		case silent:
			out.text.WriteString(":\n\n")
		default:
			continue
		}
		if out.flush() != nil {
			return
		}
		beat.Reset(waits.heartbeat)
	}
}

// writer writes messages. A client may take limited time for each.
type writer struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	now      func() time.Time
	patience time.Duration
	text     bytes.Buffer
}

// message adds a message to the next write. Only its last part has the id: a client that is
// disconnected before that must receive the whole message again.
func (w *writer) message(m live.Message) error {
	if m.Reload {
		fmt.Fprintf(&w.text, "event: reload\nid: %s\ndata: {}\n\n", m.ID)
		return nil
	}
	for i, c := range m.Changes {
		data, err := rest.Encode(Change{c.Topic, c.Environment, c.ID, c.Revision})
		if err != nil {
			return err
		}
		w.text.WriteString("event: change\n")
		if i == len(m.Changes)-1 {
			fmt.Fprintf(&w.text, "id: %s\n", m.ID)
		}
		fmt.Fprintf(&w.text, "data: %s\n", data) // which ends with a newline
	}
	return nil
}

func (w *writer) flush() error {
	_ = w.control.SetWriteDeadline(w.now().Add(w.patience)) // not supported by a test's recorder
	_, err := w.w.Write(w.text.Bytes())
	w.text.Reset()
	if err != nil {
		return err
	}
	return w.control.Flush()
}
