package ide

import (
	"encoding/json"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The kinds of repository events. Pushes and tags are deployed to sandbox, pull requests are only
// validated.
const (
	Push        = "push"
	PullRequest = "pull_request"
	Tag         = "tag"
	// nothing is an event that needs no work, such as a ping, a deleted branch or a comment.
	nothing = "none"
)

// The sources of deployments. The headers of a delivery name its source.
const (
	Signed = "service"
	GitHub = "github"
	GitLab = "gitlab"
	Editor = "editor"
)

// gitEvent is a delivery in the form that is common to all senders.
type gitEvent struct {
	kind       string
	repository string // URL, as the sender writes it; may be empty
	branch     string // of a push, or the target of a pull request, or the name of a tag
	commit     string
	files      []controlfile.File
	paths      []string
}

// parseEvent reads the body of a delivery. header is the sender's event header.
func parseEvent(source, header string, body []byte) (gitEvent, error) {
	doc, err := value.Decode(body, value.Limits{Depth: 64})
	if err != nil {
		return gitEvent{}, fault.New(fault.BadRequest, "invalid_json", "the body is not valid JSON")
	}
	switch source {
	case GitHub:
		return parseGitHub(header, body)
	case GitLab:
		return parseGitLab(header, body)
	default:
		return parseOwn(doc)
	}
}

func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fault.New(fault.BadRequest, "invalid_event", "the body does not match its event")
	}
	return nil
}

// parseGitHub reads GitHub's `push` and `pull_request` payloads.
func parseGitHub(header string, body []byte) (gitEvent, error) {
	var p struct {
		Ref        string `json:"ref"`
		After      string `json:"after"`
		Deleted    bool   `json:"deleted"`
		Action     string `json:"action"`
		HeadCommit *struct {
			ID string `json:"id"`
		} `json:"head_commit"`
		Repository struct {
			CloneURL string `json:"clone_url"`
		} `json:"repository"`
		PullRequest struct {
			Head struct {
				SHA string `json:"sha"`
			} `json:"head"`
			Base struct {
				Ref string `json:"ref"`
			} `json:"base"`
		} `json:"pull_request"`
	}
	if err := decode(body, &p); err != nil {
		return gitEvent{}, err
	}
	e := gitEvent{kind: nothing, repository: p.Repository.CloneURL}
	switch header {
	case "push":
		if p.Deleted || p.After == "" {
			return e, nil
		}
		e.commit = p.After
		if p.HeadCommit != nil { // for an annotated tag, after is the id of the tag itself
			e.commit = p.HeadCommit.ID
		}
		return e.of(p.Ref), nil
	case "pull_request":
		switch p.Action {
		case "opened", "synchronize", "reopened", "ready_for_review":
			e.kind, e.commit, e.branch = PullRequest, p.PullRequest.Head.SHA, p.PullRequest.Base.Ref
		}
	}
	return e, nil
}

// of returns the event as a push of the branch or tag that ref names.
func (e gitEvent) of(ref string) gitEvent {
	if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
		e.kind, e.branch = Push, name
	} else if name, ok := strings.CutPrefix(ref, "refs/tags/"); ok {
		e.kind, e.branch = Tag, name
	}
	return e
}

// parseGitLab reads GitLab's push, tag push and merge request payloads.
func parseGitLab(header string, body []byte) (gitEvent, error) {
	var p struct {
		Ref         string `json:"ref"`
		After       string `json:"after"`
		CheckoutSHA string `json:"checkout_sha"`
		Project     struct {
			URL string `json:"git_http_url"`
		} `json:"project"`
		Attributes struct {
			Action       string `json:"action"`
			OldRev       string `json:"oldrev"`
			TargetBranch string `json:"target_branch"`
			LastCommit   struct {
				ID string `json:"id"`
			} `json:"last_commit"`
		} `json:"object_attributes"`
	}
	if err := decode(body, &p); err != nil {
		return gitEvent{}, err
	}
	e := gitEvent{kind: nothing, repository: p.Project.URL}
	switch header {
	case "Push Hook", "Tag Push Hook":
		if strings.Trim(p.After, "0") == "" { // deleted
			return e, nil
		}
		e.commit = p.After
		if p.CheckoutSHA != "" {
			e.commit = p.CheckoutSHA
		}
		return e.of(p.Ref), nil
	case "Merge Request Hook":
		switch a := p.Attributes; {
		case a.Action == "open", a.Action == "reopen", a.Action == "update" && a.OldRev != "":
			e.kind, e.commit, e.branch = PullRequest, a.LastCommit.ID, a.TargetBranch
		}
	}
	return e, nil
}

// sameRepository reports whether two URLs name the same repository. It ignores the case of the
// scheme and host, final slashes and .git.
func sameRepository(a, b string) bool { return plainURL(a) == plainURL(b) }

func plainURL(raw string) string {
	raw = strings.TrimSuffix(strings.TrimRight(raw, "/"), ".git")
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return raw
	}
	host, path, _ := strings.Cut(rest, "/")
	return strings.ToLower(scheme) + "://" + strings.ToLower(host) + "/" + path
}
