package ide

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Payloads of GitHub and GitLab, with only the members that are read.
const (
	githubPush   = `{"ref":"refs/heads/main","before":"` + zeros + `","after":"` + one + `","deleted":false,"head_commit":{"id":"` + one + `"},"repository":{"clone_url":"https://github.com/acme/controls.git","private":true},"pusher":{"name":"ada"}}`
	githubTag    = `{"ref":"refs/tags/v1","after":"` + two + `","head_commit":{"id":"` + one + `"},"repository":{"clone_url":"https://github.com/acme/controls.git"}}`
	githubDelete = `{"ref":"refs/heads/old","after":"` + zeros + `","deleted":true,"head_commit":null,"repository":{"clone_url":"x"}}`
	githubPull   = `{"action":"synchronize","number":7,"pull_request":{"head":{"sha":"` + two + `","ref":"change"},"base":{"ref":"main"}},"repository":{"clone_url":"x"}}`
	gitlabPush   = `{"object_kind":"push","ref":"refs/heads/main","after":"` + one + `","checkout_sha":"` + one + `","project":{"git_http_url":"https://gitlab.com/acme/controls.git"}}`
	gitlabTag    = `{"object_kind":"tag_push","ref":"refs/tags/v2","after":"` + two + `","checkout_sha":"` + one + `","project":{"git_http_url":"x"}}`
	gitlabGone   = `{"object_kind":"push","ref":"refs/heads/old","after":"` + zeros + `","checkout_sha":null,"project":{"git_http_url":"x"}}`
	gitlabMerge  = `{"object_kind":"merge_request","project":{"git_http_url":"x"},"object_attributes":{"action":"open","source_branch":"c","target_branch":"main","last_commit":{"id":"` + two + `"}}}`
	gitlabWords  = `{"object_kind":"merge_request","project":{"git_http_url":"x"},"object_attributes":{"action":"update","target_branch":"main","last_commit":{"id":"` + two + `"}}}`

	zeros = "0000000000000000000000000000000000000000"
	one   = "1111111111111111111111111111111111111111"
	two   = "2222222222222222222222222222222222222222"
)

func TestParseEvent(t *testing.T) {
	for name, c := range map[string]struct {
		source, header, body string
		kind, branch, commit string
	}{
		"push":                 {GitHub, "push", githubPush, Push, "main", one},
		"annotated tag":        {GitHub, "push", githubTag, Tag, "v1", one},
		"deleted branch":       {GitHub, "push", githubDelete, nothing, "", ""},
		"pull request":         {GitHub, "pull_request", githubPull, PullRequest, "main", two},
		"closed pull request":  {GitHub, "pull_request", strings.Replace(githubPull, "synchronize", "closed", 1), nothing, "", ""},
		"ping":                 {GitHub, "ping", `{"zen":"x","repository":{"clone_url":"x"}}`, nothing, "", ""},
		"GitLab push":          {GitLab, "Push Hook", gitlabPush, Push, "main", one},
		"GitLab tag":           {GitLab, "Tag Push Hook", gitlabTag, Tag, "v2", one},
		"GitLab deleted":       {GitLab, "Push Hook", gitlabGone, nothing, "", ""},
		"GitLab merge request": {GitLab, "Merge Request Hook", gitlabMerge, PullRequest, "main", two},
		"GitLab title changed": {GitLab, "Merge Request Hook", gitlabWords, nothing, "", ""},
		"GitLab comment":       {GitLab, "Note Hook", `{}`, nothing, "", ""},
		"own":                  {Signed, "", `{"repository_url":"x","event_type":"tag_created","branch":"refs/tags/v3","commit_hash":"` + one + `"}`, Tag, "v3", one},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := parseEvent(c.source, c.header, []byte(c.body))
			if err != nil || e.kind != c.kind || e.branch != c.branch || e.commit != c.commit {
				t.Errorf("%+v, %v", e, err)
			}
		})
	}
}

func TestParseOwn(t *testing.T) {
	e, err := parseEvent(Signed, "", []byte(`{"repository_url":"x","event_type":"push","policy_files":[{"path":"a.rego","content":""},"b.rego",{"path":"c.rego"}]}`))
	if err != nil || len(e.files) != 1 || fmt.Sprint(e.paths) != "[b.rego c.rego]" {
		t.Errorf("%+v, %v", e, err)
	}
	many := `{"repository_url":"x","event_type":"push","policy_files":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`
	for name, body := range map[string]string{
		"an unknown event":  `{"repository_url":"x","event_type":"fork"}`,
		"a misspelt member": `{"repository_url":"x","event_type":"push","policy_file":[]}`,
		"a twin":            `{"repository_url":"x","event_type":"push","Event_Type":"tag"}`,
		"files that are no": `{"repository_url":"x","event_type":"push","policy_files":{"a":1}}`,
		"a file of numbers": `{"repository_url":"x","event_type":"push","policy_files":[7]}`,
		"an empty path":     `{"repository_url":"x","event_type":"push","policy_files":[""]}`,
		"a long path":       `{"repository_url":"x","event_type":"push","policy_files":["` + strings.Repeat("a", 513) + `"]}`,
		"too many":          many,
		"a file's twin":     `{"event_type":"push","policy_files":[{"path":"a.rego","Content":"package a"}]}`,
		"what is no object": `[]`,
		"what is no JSON":   `{`,
		"nesting":           strings.Repeat("[", 1000),
	} {
		if _, err := parseEvent(Signed, "", []byte(body)); !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.BadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParseOwnTellsAll: all errors of a delivery are reported, with their positions.
func TestParseOwnTellsAll(t *testing.T) {
	for body, want := range map[string][]string{
		`{"Event_Type":"push"}`: {"/Event_Type", "/event_type"},
		`{"event_type":null,"repository_url":5,"branch":[],"commit_hash":true}`: {"/branch", "/event_type", "/repository_url", "/commit_hash"},
		`{"event_type":"push","comit_hash":"a","a/b":1}`:                        {"/comit_hash", "/a~1b"},
		`{"event_type":"push","branch":"` + strings.Repeat("ü", 256) + `"}`:     {"/branch"},
		`{"event_type":"push","policy_files":[{"path":"a","content":7},{"content":""},{"path":"b","zz":1},null,"ok"]}`: {
			"/policy_files/0/content", "/policy_files/1/path", "/policy_files/2/zz", "/policy_files/3",
		},
		`null`: {""},
	} {
		_, err := parseEvent(Signed, "", []byte(body))
		var got []string
		for _, d := range fault.Offences(err) {
			got = append(got, d.Pointer)
		}
		if !slices.Equal(got, want) || !fault.Is(err, fault.BadRequest) {
			t.Errorf("%s: %q, want %q (%v)", body, got, want, err)
		}
	}
	if _, err := parseEvent(Signed, "", []byte(`{"event_type":"push","branch":"`+strings.Repeat("ü", 255)+`","commit_hash":null}`)); err != nil {
		t.Error(err)
	}
}

func TestVouched(t *testing.T) {
	body := []byte(githubPush)
	secret := []byte("a secret of some length")
	good := Delivery{Source: GitHub, Body: body, Signature: "sha256=" + strings.Repeat("0", 64)}
	if signatureValid(good, secret) {
		t.Error("a made-up signature vouches")
	}
	if !signatureValid(Delivery{Source: GitLab, Signature: string(secret)}, secret) || signatureValid(Delivery{Source: GitLab, Signature: ""}, secret) || signatureValid(Delivery{Source: GitLab, Signature: string(secret[:5])}, secret) {
		t.Error("GitLab's token")
	}
}

func TestSameRepository(t *testing.T) {
	for _, pair := range [][2]string{
		{"https://Git.example.com/a/b.git", "https://git.example.com/a/b"},
		{"https://git.example.com/a/b/", "https://git.example.com/a/b.git"},
	} {
		if !sameRepository(pair[0], pair[1]) {
			t.Errorf("%v differ", pair)
		}
	}
	if sameRepository("https://git.example.com/a/b", "https://git.example.com/A/b") || sameRepository("https://git.example.com/a", "http://git.example.com/a") {
		t.Error("different repositories are one")
	}
}

func TestControlPath(t *testing.T) {
	for given, want := range map[string]string{
		"": "control.rego", "orders.rego": "orders.rego", "/home/ada/orders.rego": "home/ada/orders.rego", `C:\work\orders.rego`: "work/orders.rego",
		"file:///work/orders.rego": "work/orders.rego", "orders": "orders.rego",
	} {
		if got := controlPath(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

// FuzzEvent: any payload either fails, or gives an event with a kind and a limited number of files.
func FuzzEvent(f *testing.F) {
	for _, seed := range [][3]string{
		{GitHub, "push", githubPush},
		{GitHub, "push", githubTag},
		{GitHub, "push", githubDelete},
		{GitHub, "pull_request", githubPull},
		{GitLab, "Push Hook", gitlabPush},
		{GitLab, "Tag Push Hook", gitlabTag},
		{GitLab, "Merge Request Hook", gitlabMerge},
		{Signed, "", `{"repository_url":"x","event_type":"push","policy_files":[{"path":"a.rego","content":"package a"},"b.rego"]}`},
		{GitHub, "push", `{"head_commit":{"id":7}}`},
		{Signed, "", `{"policy_files":[null]}`},
	} {
		f.Add(seed[0], seed[1], []byte(seed[2]))
	}
	f.Fuzz(func(t *testing.T, source, header string, body []byte) {
		e, err := parseEvent(source, header, body)
		if err != nil {
			return
		}
		if !json.Valid(body) || e.kind == "" || len(e.files)+len(e.paths) > 1000 {
			t.Errorf("%q becomes %+v", body, e)
		}
		_ = e.idle(&Repository{Branch: "main"})
	})
}
