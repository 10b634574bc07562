package ide

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	commitC = "cccccccccccccccccccccccccccccccccccccccc"
	commitD = "dddddddddddddddddddddddddddddddddddddddd"
)

// TestCleanKeepsCharacters: an error that is cut for the log is still UTF-8.
func TestCleanKeepsCharacters(t *testing.T) {
	for _, before := range []string{"", "x"} {
		if text := (source{}).clean(errors.New(before + strings.Repeat("é", maxCause))); !utf8.ValidString(text) || len(text) > maxCause || len(text) < maxCause-1 {
			t.Errorf("%q, %d bytes", text, len(text))
		}
	}
}

// TestShallow checks that only the commit is fetched if a ref points to it or the server serves single
// commits. Otherwise a part of the history of its branch is fetched.
func TestShallow(t *testing.T) {
	for what, c := range map[string]struct {
		caps   []capability.Capability
		hash   string
		branch string
		want   string // the fetched ref or commit; empty: refused
		depth  packp.Depth
	}{
		"a branch's tip":                  {[]capability.Capability{capability.Shallow}, commitA, "main", commitA, packp.DepthCommits(1)},
		"a tag's commit, peeled":          {[]capability.Capability{capability.Shallow}, commitC, "v1", commitC, packp.DepthCommits(1)},
		"HEAD":                            {[]capability.Capability{capability.Shallow}, commitB, "", commitB, packp.DepthCommits(1)},
		"an older one, by its id":         {[]capability.Capability{capability.Shallow, "allow-reachable-sha1-in-want"}, commitD, "main", commitD, packp.DepthCommits(1)},
		"any, by its id":                  {[]capability.Capability{capability.Shallow, "allow-any-sha1-in-want"}, commitD, "gone", commitD, packp.DepthCommits(1)},
		"an older one, by its branch":     {[]capability.Capability{capability.Shallow}, commitD, "main", commitA, packp.DepthCommits(deepBranch)},
		"an older one, by HEAD":           {[]capability.Capability{capability.Shallow}, commitD, "", commitB, packp.DepthCommits(deepBranch)},
		"an older one, by its tag":        {[]capability.Capability{capability.Shallow}, commitD, "v1", commitB, packp.DepthCommits(deepBranch)},
		"of a branch that is not there":   {[]capability.Capability{capability.Shallow}, commitD, "gone", "", nil},
		"of a server that cannot shorten": {nil, commitA, "main", commitA, nil},
	} {
		refs := packp.NewAdvRefs()
		head := plumbing.NewHash(commitB)
		refs.Head = &head
		refs.References["refs/heads/main"] = plumbing.NewHash(commitA)
		refs.References["refs/tags/v1"] = plumbing.NewHash(commitB)
		refs.Peeled["refs/tags/v1"] = plumbing.NewHash(commitC)
		for _, name := range c.caps {
			errtest.Must(t, refs.Capabilities.Add(name))
		}
		req, err := newUploadRequest(refs, source{hash: c.hash, branch: c.branch})
		if c.want == "" {
			f, ok := err.(*fault.Error)
			if !ok || f.Kind != fault.Invalid || f.Code != "commit_not_found" {
				t.Errorf("%s: %v, want commit_not_found", what, err)
			}
			continue
		}
		if err != nil || len(req.Wants) != 1 || req.Wants[0] != plumbing.NewHash(c.want) {
			t.Errorf("%s: %v %v, want %s", what, req, err, c.want)
			continue
		}
		if c.depth != nil && req.Depth != c.depth {
			t.Errorf("%s: depth %v, want %v", what, req.Depth, c.depth)
		}
		if req.Capabilities.Supports(capability.Shallow) != (len(c.caps) > 0) {
			t.Errorf("%s: the capabilities are %v, want shallow only if the server has it", what, req.Capabilities)
		}
	}
}

// Only complete ids of commits in lower case are accepted.
func TestHexHash(t *testing.T) {
	for hash, want := range map[string]bool{
		commitA: true, strings.Repeat("0123456789abcdef", 3)[:40]: true, "": false, commitA[1:]: false, commitA + "a": false, strings.ToUpper(commitA): false,
		"g" + commitA[1:]: false, "aaaaaaaaaaaaaaaaaaaa/aaaaaaaaaaaaaaaaaaa": false, strings.Repeat("a", 39) + "\n": false, "HEAD": false,
	} {
		if hexHash(hash, 40) != want {
			t.Errorf("hexHash(%q) = %v, want %v", hash, !want, want)
		}
	}
	if long := strings.Repeat("a", 64); !hexHash(long, 64) || hexHash(long, 40) || hexHash(commitA, 64) {
		t.Error("an id of SHA-1 or SHA-256 is not accepted, or accepted as one of the other")
	}
}

// TestDeliveryDigests checks that a delivery is recognised by its id and by its signed content, for
// one repository and one protocol, and never by a part of them.
func TestDeliveryDigests(t *testing.T) {
	base := Delivery{Source: GitHub, Repository: 1, Delivery: "d1", Signature: "s", Body: []byte("b")}
	if got := deliveryDigests(base); len(got) != 2 || len(got[0]) != 64 || got[0] == got[1] || !slices.Equal(got, deliveryDigests(base)) {
		t.Errorf("deliveryDigests = %q, want the same two each time", got)
	}
	for what, change := range map[string]func(a *Delivery){
		"another repository": func(a *Delivery) { a.Repository = 2 }, "another protocol": func(a *Delivery) { a.Source = GitLab },
		"another id and body": func(a *Delivery) { a.Delivery, a.Body = "d2", []byte("c") },
		"the id as the body":  func(a *Delivery) { a.Delivery, a.Body = "b", []byte("d1") },
	} {
		other := base
		change(&other)
		for _, digest := range deliveryDigests(other) {
			if slices.Contains(deliveryDigests(base), digest) {
				t.Errorf("%s: the digest %s is that of the first delivery", what, digest)
			}
		}
	}
	again := base
	again.Delivery, again.Signature = "made up", "another header of the same body"
	if deliveryDigests(again)[1] != deliveryDigests(base)[1] {
		t.Error("the same body with another id has another second digest")
	}
	if got := deliveryDigests(Delivery{Body: []byte("b")}); len(got) != 0 {
		t.Errorf("without id and signature: %q, want no digests", got)
	}
}

// An event that concerns no registered branch needs no action, and the answer says why.
func TestIdle(t *testing.T) {
	followed := &Repository{Branch: "main"}
	for what, c := range map[string]struct {
		e    gitEvent
		r    *Repository
		want string
	}{
		"nothing":                     {gitEvent{kind: nothing}, nil, "the event needs no action"},
		"a push, not registered":      {gitEvent{kind: Push, branch: "x"}, nil, ""},
		"a push to the branch":        {gitEvent{kind: Push, branch: "main"}, followed, ""},
		"a push to another":           {gitEvent{kind: Push, branch: "mainly"}, followed, "the repository is registered for another branch"},
		"a pull request into another": {gitEvent{kind: PullRequest, branch: "dev"}, followed, "the repository is registered for another branch"},
		"a tag":                       {gitEvent{kind: Tag, branch: "v1"}, followed, ""},
		"a push, all branches":        {gitEvent{kind: Push, branch: "dev"}, &Repository{}, ""},
		"nothing, on another branch":  {gitEvent{kind: nothing, branch: "dev"}, followed, "the event needs no action"},
		"a push of no branch":         {gitEvent{kind: Push}, followed, "the repository is registered for another branch"},
	} {
		if got := c.e.idle(c.r); got != c.want {
			t.Errorf("%s: idle = %q, want %q", what, got, c.want)
		}
	}
}
