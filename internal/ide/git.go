package ide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/gitpack"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// fetchTime limits one fetch, from the first connection to the last byte.
const fetchTime = 30 * time.Second

// deepBranch is how many commits of a branch are fetched if the server does not serve
// single commits.
const deepBranch = 50

// source is what to fetch: a commit, and the branch or tag that should contain it. If hash is
// empty, it is the newest commit of the branch, or of the default branch.
type source struct {
	url, token   string
	branch, hash string
	// have is a commit whose files the caller has. If it is the wanted one, no pack is fetched.
	have string
	// large is the memory for large answers; nil: it is not bounded.
	large *largeAnswer
}

// File names a file of a repository that is not registered.
type File struct {
	// URL is the repository. Token is its credential; a user name can come before it (name:token).
	URL, Token string
	// Branch is a branch or tag; empty means the default branch. Path is the path of the file.
	Branch, Path string
	// Have is the commit whose file the caller has; empty means none.
	Have string
	// Largest is the maximum size of the file in bytes.
	Largest int64
}

// ReadFile returns a file of the newest commit of a branch, and the commit. The text is empty if
// the caller has that commit. Faults: Invalid and BadGateway if the repository or the file cannot
// be read.
func (s *Service) ReadFile(ctx context.Context, tenant scope.TenantID, f File) (text, commit string, err error) {
	large := &largeAnswer{pool: s.Large, tenant: tenant}
	defer large.free()
	pack, commit, err := s.fetchPack(ctx, source{url: f.URL, token: f.Token, branch: f.Branch, have: f.Have, large: large})
	if err != nil || f.Have != "" && commit == f.Have {
		return "", commit, err
	}
	files, err := s.Unpack(ctx, tenant, gitpack.Request{Pack: pack, Commit: commit, Paths: []string{f.Path}, Largest: f.Largest})
	if err != nil {
		return "", "", err
	}
	return files[0].Content, commit, nil
}

// fetchPack fetches the pack with a commit, with as little history as the server allows, and
// returns the id of the commit. It connects with the guarded client, and reads a limited number of
// bytes.
func (s *Service) fetchPack(ctx context.Context, w source) (pack []byte, commit string, err error) {
	defer func() {
		if p := recover(); p != nil { // go-git may panic on the answer of a hostile server
			s.Panics.Caught(ctx, "git", p, debug.Stack())
			pack, commit, err = nil, "", w.answered(fmt.Errorf("panic: %s", fault.DescribePanic(p)))
		}
		if err != nil && w.large.isRefused() {
			err = tooBusy(err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	ep, err := transport.NewEndpoint(w.url)
	if err != nil || ep.Protocol != "https" && ep.Protocol != "http" {
		return nil, "", fetchFault(fmt.Errorf("not a web address: %w", errors.Join(err, errors.ErrUnsupported)))
	}
	var auth transport.AuthMethod
	if w.token != "" {
		name, password := w.credential()
		auth = &githttp.BasicAuth{Username: name, Password: password}
	}
	// The client follows no redirects, so that the credential goes nowhere else.
	client := githttp.NewClientWithOptions(s.Target.BoundedWith(gitpack.MaxPack+1<<20, w.large.take), &githttp.ClientOptions{RedirectPolicy: githttp.NoFollowRedirects})
	session, err := client.NewUploadPackSession(ep, auth)
	if err != nil {
		return nil, "", fetchFault(err)
	}
	defer session.Close()
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, "", w.answered(err)
	}
	req, err := newUploadRequest(refs, w)
	if err != nil {
		return nil, "", err
	}
	if w.have != "" && req.Wants[0].String() == w.have {
		return nil, w.have, nil
	}
	res, err := session.UploadPack(ctx, req)
	if err != nil {
		return nil, "", w.answered(err)
	}
	defer res.Close()
	pack, err = io.ReadAll(io.LimitReader(demuxed(req.Capabilities, res), gitpack.MaxPack+1))
	if err != nil {
		return nil, "", w.answered(err)
	}
	if len(pack) > gitpack.MaxPack {
		return nil, "", fault.Newf(fault.Invalid, "repository_too_large", "the commit is larger than %d bytes, packed", gitpack.MaxPack)
	}
	if commit = w.hash; commit == "" {
		commit = req.Wants[0].String()
	}
	return pack, commit, nil
}

// newUploadRequest returns the request for one commit. It asks for the commit by its id if a ref
// points to it or the server allows that. Otherwise it asks for the branch with part of its
// history. If the source has no commit, it asks for the tip of the branch.
func newUploadRequest(refs *packp.AdvRefs, w source) (*packp.UploadPackRequest, error) {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	hash, depth := plumbing.NewHash(w.hash), 1
	if w.hash == "" {
		tip, ok := commitAt(refs, w.branch)
		if !ok {
			return nil, fault.New(fault.Invalid, "commit_not_found", "the repository has no such branch")
		}
		hash = tip
	} else if !advertised(refs, hash) && !refs.Capabilities.Supports(capability.AllowReachableSHA1InWant) && !refs.Capabilities.Supports("allow-any-sha1-in-want") {
		tip, ok := commitAt(refs, w.branch)
		if !ok {
			return nil, fault.New(fault.Invalid, "commit_not_found", "the repository does not provide this commit, and has no such branch or tag")
		}
		hash, depth = tip, deepBranch
	}
	req.Wants = append(req.Wants, hash)
	if refs.Capabilities.Supports(capability.Shallow) {
		req.Depth = packp.DepthCommits(depth)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return nil, fetchFault(err)
		}
	}
	return req, nil
}

func advertised(refs *packp.AdvRefs, hash plumbing.Hash) bool {
	for _, h := range refs.References {
		if h == hash {
			return true
		}
	}
	for _, h := range refs.Peeled {
		if h == hash {
			return true
		}
	}
	return refs.Head != nil && *refs.Head == hash
}

// commitAt returns the commit of a branch or tag, or of HEAD if name is empty.
func commitAt(refs *packp.AdvRefs, name string) (plumbing.Hash, bool) {
	if name == "" && refs.Head != nil {
		return *refs.Head, true
	}
	for _, full := range []string{"refs/heads/" + name, "refs/tags/" + name} {
		if h, ok := refs.References[full]; ok {
			return h, true
		}
	}
	return plumbing.ZeroHash, false
}

// demuxed returns a reader of the pack without the messages that the server may mix into it.
func demuxed(caps *capability.List, r io.Reader) io.Reader {
	switch {
	case caps.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, r)
	case caps.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, r)
	default:
		return r
	}
}

// hexHash reports whether a text is a full commit id with this many digits: 40 for SHA-1,
// 64 for SHA-256.
func hexHash(hash string, digits int) bool {
	return len(hash) == digits && strings.Trim(hash, "0123456789abcdef") == ""
}
