package ide

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	maxDeliveredFiles = 1000
	maxDeliveredPath  = 512      // characters
	maxDelivery       = 10 << 20 // bytes of a whole delivery
)

// parseOwn reads the body of gatehouse's own webhook. Names of members are case-sensitive. It
// reports up to 100 errors with their positions. Unknown members are errors, so that a misspelt
// name is noticed.
func parseOwn(doc value.Value) (gitEvent, error) {
	var r ownReader
	if !r.object("", doc, "repository_url", "branch", "commit_hash", "policy_files", "event_type") {
		return gitEvent{}, r.fault()
	}
	branch := r.text("/branch", doc.Get("branch"), 0, 255)
	e := gitEvent{
		kind:       r.kind(r.text("/event_type", doc.Get("event_type"), 1, 64)),
		repository: r.text("/repository_url", doc.Get("repository_url"), 0, 2000),
		branch:     strings.TrimPrefix(strings.TrimPrefix(branch, "refs/heads/"), "refs/tags/"),
		commit:     r.text("/commit_hash", doc.Get("commit_hash"), 0, 64),
	}
	r.files(&e, doc.Get("policy_files"))
	return e, r.fault()
}

// ownReader reads the body of gatehouse's own webhook and collects its errors.
type ownReader struct{ bad []fault.Detail }

func (r *ownReader) refuse(pointer, message string) {
	if len(r.bad) < 100 {
		r.bad = append(r.bad, fault.Detail{Pointer: pointer, Message: message})
	}
}

// fault returns a BadRequest fault with all errors, or nil if there are none.
func (r *ownReader) fault() error {
	if len(r.bad) == 0 {
		return nil
	}
	f := fault.New(fault.BadRequest, "invalid_event", strings.TrimPrefix(r.bad[0].Pointer+": ", ": ")+r.bad[0].Message)
	f.Details = r.bad
	return f
}

// object adds an error if v is not an object, and one for each unknown member. It reports whether v
// is an object.
func (r *ownReader) object(pointer string, v value.Value, known ...string) bool {
	if v.Kind() != value.ObjectKind {
		r.refuse(pointer, "expected an object")
		return false
	}
	v.Each(func(name string, _ value.Value) bool {
		if slices.Contains(known, name) {
			return true
		}
		escaped := strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
		r.refuse(pointer+"/"+escaped, "there is no such member here"+fault.DidYouMean(name, known))
		return len(r.bad) < 100
	})
	return true
}

// text reads a string of least to most characters. If least is 0, the string may be absent.
func (r *ownReader) text(pointer string, v value.Value, least, most int) string {
	if !v.Defined() || v.IsNull() {
		if least > 0 {
			r.refuse(pointer, "this member is required")
		}
		return ""
	}
	text, ok := v.Str()
	switch n := utf8.RuneCountInString(text); {
	case !ok:
		r.refuse(pointer, "expected a string")
	case n < least || n > most:
		r.refuse(pointer, "expected "+strconv.Itoa(least)+" to "+strconv.Itoa(most)+" characters")
	}
	return text
}

func (r *ownReader) kind(event string) string {
	switch event {
	case Push:
		return Push
	case PullRequest, "merge_request":
		return PullRequest
	case Tag, "tag_push", "tag_created":
		return Tag
	case "": // text has added an error
	default:
		r.refuse("/event_type", "the event must be push, pull_request or tag")
	}
	return ""
}

// files reads policy_files into e.paths (files without content) and e.files (files with content).
func (r *ownReader) files(e *gitEvent, list value.Value) {
	const at = "/policy_files"
	if !list.Defined() || list.IsNull() {
		return
	}
	if list.Kind() != value.ArrayKind {
		r.refuse(at, "an array of files or paths is expected")
		return
	}
	items := list.Elems()
	if len(items) > maxDeliveredFiles {
		r.refuse(at, "there are at most "+strconv.Itoa(maxDeliveredFiles)+" files")
		return
	}
	for i, item := range items {
		here := at + "/" + strconv.Itoa(i)
		switch item.Kind() {
		case value.StringKind:
			e.paths = append(e.paths, r.text(here, item, 1, maxDeliveredPath))
		case value.ObjectKind:
			r.object(here, item, "path", "content")
			path := r.text(here+"/path", item.Get("path"), 1, maxDeliveredPath)
			if content := item.Get("content"); content.Defined() && !content.IsNull() {
				e.files = append(e.files, controlfile.File{Path: path, Content: r.text(here+"/content", content, 0, maxDelivery)})
			} else {
				e.paths = append(e.paths, path)
			}
		default:
			r.refuse(here, "each file must be a path, or an object with path and content")
		}
	}
}
