package ide

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// fetchFault returns the fault for every failure to reach a repository. It has one message, which
// reveals nothing about the network.
func fetchFault(err error) error {
	return fault.New(fault.BadGateway, "repository_unreachable", "the repository could not be fetched").Because(err)
}

// unsupported returns the fault for repositories that go-git cannot read (object-format in
// gitprotocol-capabilities).
func unsupported() error {
	return fault.New(fault.Invalid, "object_format_unsupported", "the repository names its objects by SHA-256, which is not supported: use one with SHA-1 ids, or send the files along as policy_files")
}

// redirected is the prefix of go-git's errors about redirects, which have no type.
const redirected = "http redirect: "

// answered returns the fault for an error that a host's answer caused. Neither the fault nor the
// log contains the text of a host's refusal, because it may repeat the credential.
func (w source) answered(err error) error {
	refused := func(text string) error {
		return fault.New(fault.BadGateway, "repository_refused", text).Because(errors.New(w.clean(err)))
	}
	garbled, ok := errors.AsType[*packp.ErrUnexpectedData](err)
	switch status := statusOf(err); {
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fault.New(fault.Invalid, "commit_not_found", "the repository is empty")
	case ok && bytes.Contains(garbled.Data, []byte("object-format=sha256")):
		return unsupported()
	case status == 401 && w.token == "":
		return refused("the repository asks for a credential: store an access token for it")
	case status == 401:
		return refused("the repository's host does not accept the stored access token: it is wrong, has expired, or needs its user name before it (name:token)")
	case status == 403:
		return refused("the repository's host forbids access: the access token lacks the permission, or the host does not accept this address")
	case status == 404:
		return refused("the repository's host has no such repository, or does not show it to this access token")
	case status >= 300 && status < 400, strings.Contains(err.Error(), redirected):
		return refused("the repository's host answered with a redirect, which gatehouse does not follow: register the address that it leads to")
	case status != 0:
		return refused(fmt.Sprintf("the repository's host answered %d", status))
	default:
		return fetchFault(errors.New(w.clean(err)))
	}
}

// statusOf returns the HTTP status that an error of go-git stands for, or 0.
func statusOf(err error) int {
	if unexpected, ok := errors.AsType[*plumbing.UnexpectedError](err); ok {
		err = unexpected.Err
	}
	other, answered := errors.AsType[*githttp.Err](err)
	switch {
	case errors.Is(err, transport.ErrAuthenticationRequired):
		return 401
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return 403
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return 404
	case answered:
		return other.StatusCode()
	default:
		return 0
	}
}

// maxCause limits how much of an error is logged, in bytes.
const maxCause = 300

// clean returns the part of an error that may be logged. That is only the status of a host's
// refusal, or the beginning of any other error without the credential in any of its encodings.
func (w source) clean(err error) string {
	if status := statusOf(err); status != 0 {
		return fmt.Sprintf("the host answered %d", status)
	}
	text := err.Error()
	if w.token != "" {
		name, password := w.credential()
		for _, s := range []string{password, base64.StdEncoding.EncodeToString([]byte(name + ":" + password)), url.QueryEscape(password), url.PathEscape(password)} {
			if s != "" {
				text = strings.ReplaceAll(text, s, "[redacted]")
			}
		}
	}
	return strings.ToValidUTF8(text[:min(len(text), maxCause)], "")
}

// credential returns the name and password for HTTP Basic authentication (RFC 7617). Some hosts
// accept any name with the token. Others need a certain name, which is stored before the token
// (name:token).
func (w source) credential() (name, password string) {
	if name, password, ok := strings.Cut(w.token, ":"); ok && name != "" {
		return name, password
	}
	return "git", w.token
}
