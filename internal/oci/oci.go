// Package oci pushes one file to a registry (OCI Distribution Specification), as the only layer of
// an image. OPA's bundle plugin and the policy CLI read bundles in this form.
package oci

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// layerType is the media type of the layer that OPA reads.
const layerType = types.OCILayer

const (
	// maxReply is the largest reply of a registry, in bytes.
	maxReply = 1 << 20
	// cancelTime is how long a check may take, including the cancelling of its upload in the
	// background.
	cancelTime = 15 * time.Second
)

// The schemes of addresses: TLS, and plain HTTP for addresses that the operator allows.
const (
	Scheme      = "oci://"
	plainScheme = "oci+http://"
)

// Reference is a tag in a repository of a registry.
type Reference struct {
	tag   name.Tag
	plain bool
}

// ErrNoRepository means that an address does not name a repository of a registry.
var ErrNoRepository = errors.New("must be oci://registry/repository:tag")

// Parse reads the address of a reference: oci://registry[:port]/repository[:tag]. The default tag is
// "latest".
func Parse(address string) (Reference, error) {
	rest, plain := strings.CutPrefix(address, plainScheme)
	if !plain {
		var ok bool
		if rest, ok = strings.CutPrefix(address, Scheme); !ok {
			return Reference{}, ErrNoRepository
		}
	}
	host, repository, _ := strings.Cut(rest, "/")
	if host == "" || repository == "" || strings.ContainsAny(rest, "?#@%\\") {
		return Reference{}, ErrNoRepository
	}
	if clean := path.Clean("/" + repository); clean != "/"+repository {
		return Reference{}, ErrNoRepository
	}
	var options []name.Option
	if plain { // otherwise the library speaks HTTP only to private addresses
		options = append(options, name.Insecure)
	}
	tag, err := name.NewTag(rest, options...)
	// The library would read a host without a dot or a colon as a part of the repository, unless it
	// is localhost.
	if err != nil || tag.RegistryStr() != host && host != "docker.io" {
		return Reference{}, ErrNoRepository
	}
	return Reference{tag, plain}, nil
}

// URL returns the address of the registry.
func (p Reference) URL() string {
	scheme := "https"
	if p.plain {
		scheme = "http"
	}
	return (&url.URL{Scheme: scheme, Host: p.tag.RegistryStr(), Path: "/v2/"}).String()
}

// Login is the credential for a registry: a user with a password, or a token. The zero value signs
// in anonymously.
type Login struct{ User, Password, Token string }

func (l Login) authenticator() authn.Authenticator {
	switch {
	case l.Token != "":
		return authn.FromConfig(authn.AuthConfig{RegistryToken: l.Token})
	case l.User != "":
		return &authn.Basic{Username: l.User, Password: l.Password}
	}
	return authn.Anonymous
}

// Resolve implements authn.Keychain.
func (l Login) Resolve(authn.Resource) (authn.Authenticator, error) { return l.authenticator(), nil }

// Push stores a gzipped tar as an image with one layer, and moves the tag to it once it is
// complete. It returns the digest of the image. It does not send blobs again that the registry says it
// has.
func Push(ctx context.Context, via *outbound.Client, p Reference, l Login, data []byte, annotations map[string]string) (digest string, err error) {
	image, err := imageOf(data, annotations)
	if err != nil {
		return "", err
	}
	sum, err := image.Digest()
	if err != nil {
		return "", err
	}
	options := optionsFor(ctx, via, p, l)
	if err := remote.Write(p.tag, image, options...); err != nil {
		return "", err
	}
	return sum.String(), confirm(p, sum, options)
}

// optionsFor returns the options of calls of a registry. They do not retry, because the callers do.
func optionsFor(ctx context.Context, via *outbound.Client, p Reference, l Login) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithAuth(l.authenticator()), remote.WithUserAgent("gatehouse"), remote.WithJobs(2),
		remote.WithTransport(transportFor(ctx, via, p)),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), remote.WithRetryPredicate(func(error) bool { return false }),
	}
}

// transportFor returns a transport for calls of a registry. It follows no redirects.
func transportFor(ctx context.Context, via *outbound.Client, p Reference) http.RoundTripper {
	return redirectedBlobs{via.Transport(ctx, outbound.Bound{Plain: p.plain, MaxReply: maxReply})}
}

// redirectedBlobs turns a redirect of a HEAD of a blob into 404. Many registries have their blobs in
// the storage of a cloud, and redirect clients there. A redirect does not prove that the blob is there,
// so the library sends it again.
type redirectedBlobs struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b redirectedBlobs) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodHead && res.StatusCode/100 == 3 && strings.Contains(r.URL.Path, "/blobs/") {
		res.StatusCode, res.Status = http.StatusNotFound, ""
		res.Header.Del("Location")
	}
	return res, err
}

// Current returns the digest of the image at a place; empty: there is none.
func Current(ctx context.Context, via *outbound.Client, p Reference, l Login) (digest string, err error) {
	at, err := remote.Head(p.tag, optionsFor(ctx, via, p, l)...)
	if refused, ok := errors.AsType[*transport.Error](err); ok && refused.StatusCode == 404 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return at.Digest.String(), nil
}

// errNotStored means that a registry accepted an image but does not have it.
var errNotStored = errors.New("oci: the registry does not have the image")

// confirm checks that the registry has the image, because a proxy or a portal that answers
// everything with 200 has not stored it. If the registry does not allow us to read, confirm assumes
// that it has the image.
func confirm(p Reference, image v1.Hash, options []remote.Option) error {
	_, err := remote.Get(p.tag.Context().Digest(image.String()), options...)
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*transport.Error](err); ok {
		if refused.StatusCode == 401 || refused.StatusCode == 403 {
			return nil
		}
		return err
	}
	if _, ok := errors.AsType[*url.Error](err); ok { // no answer
		return err
	}
	return errors.Join(errNotStored, err)
}

// Check asks a registry whether it would accept a push: it starts an upload and cancels it. If ctx
// ends, Check returns its error.
func Check(ctx context.Context, via *outbound.Client, p Reference, l Login) error {
	// The library cancels the upload in the background, so its context must outlive this call.
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	context.AfterFunc(work, cancel)
	checked := make(chan error, 1)
	go func() {
		checked <- remote.CheckPushPermission(p.tag, l, transportFor(work, via, p))
	}()
	select {
	case err := <-checked:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// imageOf returns an image with one layer.
func imageOf(data []byte, annotations map[string]string) (v1.Image, error) {
	layer, err := partial.CompressedToLayer(file(data))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, annotations).(v1.Image)
	if !ok {
		return nil, errors.New("oci: an annotated image is not an image")
	}
	return annotated, nil
}

// file is the content of a layer.
type file []byte

// Digest implements partial.CompressedLayer.
func (f file) Digest() (v1.Hash, error) {
	sum, _, err := v1.SHA256(bytes.NewReader(f))
	return sum, err
}

// Compressed implements partial.CompressedLayer.
func (f file) Compressed() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f)), nil }

// Size implements partial.CompressedLayer.
func (f file) Size() (int64, error) { return int64(len(f)), nil }

// MediaType implements partial.CompressedLayer.
func (f file) MediaType() (types.MediaType, error) { return layerType, nil }

// code matches the error codes of the OCI Distribution Specification. Other texts of a registry are
// not shown.
var code = regexp.MustCompile(`^[A-Z_]{1,40}$`)

// Describe describes why a registry refused a call: the HTTP status, and a text for people. The
// status is 0 if the registry did not answer.
func Describe(err error) (status int, text string) {
	refused, ok := errors.AsType[*transport.Error](err)
	if errors.Is(err, errNotStored) {
		return 0, "the registry accepted the bundle and does not have it: something else may answer in its place"
	}
	if errors.Is(err, outbound.ErrRedirect) {
		return 0, "the registry answered with a redirect, which is not followed"
	}
	if !ok {
		return 0, "the registry could not be reached"
	}
	text = "the registry answered " + strconv.Itoa(refused.StatusCode)
	for _, d := range refused.Errors {
		if code.MatchString(string(d.Code)) {
			text += " " + string(d.Code)
		}
	}
	return refused.StatusCode, text
}
