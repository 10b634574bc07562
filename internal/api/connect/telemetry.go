package connect

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/telemetry"
)

type telemetryConfigOut struct {
	ETag string `header:"ETag" doc:"Version of the configuration; transmissions do not change it"`
	Body telemetry.Config
}

type telemetryUpdateIn struct {
	rest.IfMatch
	Body telemetry.Change
}

type telemetryHistoryIn struct {
	Limit int `query:"limit" default:"10" minimum:"1" maximum:"1000" doc:"Largest number of entries in the answer"`
	Skip  int `query:"skip" default:"0" minimum:"0" doc:"Number of entries to skip"`
}

// TransmissionPath names a transmission.
type TransmissionPath struct {
	ID int64 `path:"log_id" minimum:"1" doc:"Id of the transmission"`
}

// telemetryOp returns what the operations of telemetry have in common.
func telemetryOp(id, method, path, summary, description string) rest.Op {
	op := rest.Op{ID: id, Method: method, Permission: "telemetry:read", Token: true, Tags: []string{"Telemetry"}, Summary: summary, Description: description}
	op.Path = path
	if method != http.MethodGet {
		op.Permission = "telemetry:write"
	}
	return op
}

// telemetry registers the configuration of reports, and the reports.
func (h *Handler) telemetry(r *rest.Router) {
	rest.Register(r, telemetryOp("get-telemetry-config", http.MethodGet, "/telemetry/config", "Read the telemetry configuration",
		"404 without a configuration: nothing is sent then, and nothing needs a license."),
		func(ctx context.Context, sc scope.Scope, _ *struct{}) (*telemetryConfigOut, error) {
			c, err := h.Telemetry.Config(ctx, sc)
			return &telemetryConfigOut{rest.ETag(c.ChangeNo), c}, err
		})
	update := telemetryOp("update-telemetry-config", http.MethodPut, "/telemetry/config", "Configure telemetry and the license server",
		"Members that are not sent keep their value. A change to another host needs `api_key` (422 `credential_required`). With another server or key, the stored license is removed. Internal networks are not called (422 `target_refused`). A `frequency` that is not allowed: 400.")
	update.Record, update.Errors, update.BadValues = reflect.TypeFor[telemetry.Config](), []int{http.StatusPreconditionFailed}, []string{"/frequency"}
	rest.RegisterChange(r, update, func(ctx context.Context, sc scope.Scope, in *telemetryUpdateIn, version int64) (*telemetryConfigOut, error) {
		c, err := h.Telemetry.Update(ctx, sc, in.Body, version)
		return &telemetryConfigOut{rest.ETag(c.ChangeNo), c}, err
	})
	rest.Register(r, telemetryOp("test-telemetry-connection", http.MethodPost, "/telemetry/test-connection", "Call the license server now",
		"GET <business_admin_url>/license with the API key as the bearer token. The answer's `message` says what went wrong; a failed test is an answer with `status` failed. 404 without a license server."),
		func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[telemetry.ConnectionTest], error) {
			return rest.Answer(h.Telemetry.TestConnection(ctx, sc))
		})
	rest.Register(r, telemetryOp("preview-telemetry", http.MethodGet, "/telemetry/preview", "Show exactly what would be sent",
		"The report of the current period. A report that is sent has the same bytes as this answer, before encryption. It contains no names, rules, inputs or addresses."),
		func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[telemetry.Report], error) {
			return rest.Answer(h.Telemetry.Preview(ctx, sc))
		})
	h.transmissions(r)
	rest.Register(r, telemetryOp("get-telemetry-health", http.MethodGet, "/telemetry/health", "Get the state of telemetry",
		"Asks the license server; after a failed call, it is not asked again for a minute."),
		func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[telemetry.Health], error) {
			return rest.Answer(h.Telemetry.HealthOf(ctx, sc))
		})
	rest.Register(r, telemetryOp("get-telemetry-scheduler", http.MethodGet, "/telemetry/scheduler-status", "Get the state of the schedule",
		"Reports are due at midnight UTC and sent a few minutes later, by one replica."),
		func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[telemetry.SchedulerStatus], error) {
			return rest.Answer(h.Telemetry.Scheduler(ctx, sc))
		})
}

// transmissions registers the operation that sends a report, and the history of reports.
func (h *Handler) transmissions(r *rest.Router) {
	rest.Register(r, telemetryOp("list-telemetry-transmissions", http.MethodGet, "/telemetry/history", "List transmissions",
		"Newest first. Entries older than `local_retention_days` are removed."),
		func(ctx context.Context, sc scope.Scope, in *telemetryHistoryIn) (*rest.JSON[[]telemetry.Entry], error) {
			return rest.Answer(h.Telemetry.History(ctx, sc, int64(in.Skip), int64(in.Limit)))
		})
	send := telemetryOp("send-telemetry", http.MethodPost, "/telemetry/send-now", "Send the report of the current period now",
		"POST <business_admin_url>/telemetry with the API key as the bearer token, and an Idempotency-Key that stays the same when the report is sent again. 500 if the report does not arrive: `detail` says why, and it is tried again after 5 minutes, 10 minutes and so on. The schedule does not change. 400 while telemetry is disabled.")
	rest.Register(r, send, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[telemetry.Sent], error) {
		return rest.Answer(h.Telemetry.SendNow(ctx, sc))
	})
	retry := telemetryOp("retry-telemetry-transmission", http.MethodPost, "/telemetry/history/{log_id}/retry", "Send a failed report again",
		"Sends the report of its own period. 409 if it has arrived or is being sent; 500 if it does not arrive.")
	retry.Errors = []int{http.StatusConflict}
	rest.Register(r, retry, func(ctx context.Context, sc scope.Scope, in *TransmissionPath) (*rest.JSON[telemetry.Retried], error) {
		return rest.Answer(h.Telemetry.Retry(ctx, sc, in.ID))
	})
}
