package editors

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// webhookPatience is how long the sender of a delivery waits for the result before the answer tells
// it to ask later. GitHub disconnects after ten seconds.
const webhookPatience = 5 * time.Second

// signatureHeaders are the headers with which senders sign a delivery.
var signatureHeaders = []string{"X-Service-Signature", "X-Hub-Signature-256", "X-Gitlab-Token"}

// ideWebhookIn documents how a delivery identifies its sender.
type ideWebhookIn struct {
	Repository int64  `query:"repository" minimum:"1" doc:"Registered repository whose secret signs the delivery; webhook_url contains it. Absent: the caller needs a credential with editor:write and policies:write"`
	Service    string `header:"X-Service-Signature" maxLength:"200" doc:"sha256= and the lower-case hex HMAC-SHA256 of the raw body; the key is the repository's secret"`
	GitHub     string `header:"X-Hub-Signature-256" maxLength:"200" doc:"The same signature, in GitHub's header"`
	GitLab     string `header:"X-Gitlab-Token" maxLength:"500" doc:"The repository's secret, as GitLab sends it"`
	GitHubKind string `header:"X-GitHub-Event" maxLength:"100" doc:"GitHub's event: push and pull_request are handled, other events are ignored"`
	GitLabKind string `header:"X-Gitlab-Event" maxLength:"100" doc:"GitLab's event: Push Hook, Tag Push Hook and Merge Request Hook are handled"`
	Delivery   string `header:"X-Delivery-Id" maxLength:"200" doc:"Identifies the delivery. A repeated delivery gets the same answer and is not processed again. GitHub and GitLab send their own"`
}

// EditorDelivery is the body of POST /ide-integration/webhook in our own form; GitHub's and
// GitLab's payloads are accepted unchanged.
type EditorDelivery struct {
	RepositoryURL string `json:"repository_url,omitempty" maxLength:"2000" doc:"Repository that the files come from; with ?repository= it must be the registered one" example:"https://git.example.com/acme/controls.git"`
	Branch        string `json:"branch,omitempty" maxLength:"255" doc:"Branch, or name of the tag" example:"main"`
	CommitHash    string `json:"commit_hash,omitempty" maxLength:"64" doc:"Full id of the commit; optional only when every file includes its content"`
	PolicyFiles   []any  `json:"policy_files,omitempty" doc:"Files as {path, content}, or paths to fetch from the repository at commit_hash; absent: all Rego files and gatehouse.yaml"`
	EventType     string `json:"event_type" enum:"push,pull_request,merge_request,tag,tag_push,tag_created" doc:"push deploys to sandbox, pull_request validates, tag deploys from the tag"`
}

// EditorReceipt is the answer to a delivery.
type EditorReceipt struct {
	Success      bool             `json:"success" doc:"Always true; failures have an error body"`
	Status       string           `json:"status" enum:"completed,in_progress,ignored" doc:"in_progress: request the deployment again later"`
	Message      string           `json:"message" doc:"What was done, or why nothing was"`
	DeploymentID string           `json:"deployment_id,omitempty" doc:"The deployment; absent when nothing was deployed"`
	EventType    string           `json:"event_type,omitempty" doc:"push, pull_request or tag"`
	Replayed     bool             `json:"replayed" doc:"Whether this delivery was received before"`
	Files        []ide.FileResult `json:"files" doc:"What happened to each control"`
}

// webhook registers the operation that receives the events of repositories.
func (h *Handler) webhook(r *rest.Router) {
	rest.Raw(r, rest.Op{
		ID: "editor-webhook", Method: http.MethodPost, Path: "/ide-integration/webhook", Reach: rest.ReachSandbox, Permission: "editor:write", Optional: true, Signed: signatureHeaders, Tags: []string{"Editor integration"}, MaxBody: 10 << 20,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusBadGateway},
		Summary:     "Receive an event from a repository",
		Description: "A push is deployed to sandbox, all controls or none; a pull request is validated; a tag is deployed. Files come with the event, or are fetched over https from the repository at the event's commit. 200: done. 202: in progress. 400: refused; the body lists the errors by file, line and column. 401: the signature is missing or wrong.",
	},
		rest.RawDocs{Params: reflect.TypeFor[ideWebhookIn](), Request: reflect.TypeFor[EditorDelivery](), Response: reflect.TypeFor[EditorReceipt]()}, h.takeDelivery)
}

func (h *Handler) takeDelivery(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	body, err := rest.Body(w, req)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	a, err := arrival(req, body)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	var got ide.Receipt
	if sc.Actor.Kind == "" {
		got, err = h.IDE.ReceiveSigned(req.Context(), sc.Tenant, rest.RequestID(w), a)
	} else {
		got, err = h.IDE.Receive(req.Context(), sc, a)
	}
	if err == nil && got.Ignored == "" && got.Status == ide.InProgress {
		wait, cancel := context.WithTimeout(req.Context(), webhookPatience)
		defer cancel()
		got.Deployment, err = h.IDE.Await(wait, sc, got.ID)
	}
	if err != nil {
		rest.Fail(w, err)
		return
	}
	answerDelivery(w, got)
}

func answerDelivery(w http.ResponseWriter, got ide.Receipt) {
	out := EditorReceipt{Success: true, Status: got.Status, Message: got.Outcome.Message, DeploymentID: got.ID, EventType: got.EventType, Replayed: got.Replayed, Files: got.Outcome.Files}
	if out.Files == nil {
		out.Files = []ide.FileResult{}
	}
	switch {
	case got.Ignored != "":
		out.Status, out.Message = "ignored", got.Ignored
	case got.Status == ide.InProgress:
		out.Message = "The work continues; request the deployment"
		rest.WriteJSON(w, http.StatusAccepted, out)
		return
	case got.Status == ide.Failed:
		f := fault.New(fault.Invalid, "deployment_failed", got.Outcome.Message).With("deployment_id", got.ID)
		f.Details = got.Outcome.Errors
		rest.Fail(w, f)
		return
	}
	rest.WriteJSON(w, http.StatusOK, out)
}

// arrival reads from the headers who sent a delivery, and its signature.
func arrival(req *http.Request, body []byte) (ide.Delivery, error) {
	a := ide.Delivery{Source: ide.Signed, Body: body, Delivery: req.Header.Get("X-Delivery-Id"), Signature: req.Header.Get("X-Service-Signature")}
	a.Repository, _ = strconv.ParseInt(req.URL.Query().Get("repository"), 10, 64) // already checked; 0 if there is none
	github, gitlab := req.Header.Get("X-GitHub-Event"), req.Header.Get("X-Gitlab-Event")
	signatures := 0
	for _, name := range signatureHeaders {
		signatures += len(req.Header.Values(name))
	}
	switch {
	case github != "" && gitlab != "" || signatures > 1:
		return a, rest.BadRequest("ambiguous_signature", "send the headers of one sender, not of several")
	case github != "":
		a.Source, a.Event, a.Delivery, a.Signature = ide.GitHub, github, req.Header.Get("X-GitHub-Delivery"), req.Header.Get("X-Hub-Signature-256")
	case gitlab != "":
		a.Source, a.Event, a.Delivery, a.Signature = ide.GitLab, gitlab, req.Header.Get("X-Gitlab-Event-UUID"), req.Header.Get("X-Gitlab-Token")
	}
	return a, nil
}
