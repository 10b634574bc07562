package api

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// IfMatch is the condition of a change: embed it in an input.
type IfMatch struct {
	IfMatch string `header:"If-Match" doc:"The ETag that the object must still have, or several with commas between them, or *; else 412"`
}

// ETag is the entity tag of a versioned object: its version in quotes.
func ETag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// maxTags bounds the entity tags of one If-Match: each is a try.
const maxTags = 16

// Matching runs a change under an If-Match header: of the versions that it lists
// (RFC 9110 section 13.1.1: strong comparison, so W/ never matches) one must be
// the object's. Services check a version in the transaction of the change, which
// is the only place where the answer is certain, and change nothing where it is
// another: so the versions are tried in turn. 0 is any version: no header, or *.
func Matching[T any](header string, change func(version int64) (T, error)) (T, error) {
	var out T
	versions, err := expected(header)
	if err != nil {
		return out, err
	}
	err = Stale() // no tag is one of ours
	for _, v := range versions {
		if out, err = change(v); !fault.Is(err, fault.Precondition) {
			break
		}
	}
	return out, err
}

// expected lists the versions that an If-Match header names, each once.
func expected(header string) ([]int64, error) {
	header = strings.TrimSpace(header)
	if header == "" || header == "*" {
		return []int64{0}, nil
	}
	var versions []int64
	for n := 0; header != ""; n++ {
		if n == maxTags {
			e := badRequest("invalid_parameter", "If-Match may list %d entity tags at most", maxTags)
			e.Details = []fault.Detail{{Pointer: "header.If-Match", Message: e.Message}}
			return nil, e
		}
		tag := tagged.FindStringSubmatch(header)
		if tag == nil {
			break // the rest is no list of entity tags: it matches nothing
		}
		header = header[len(tag[0]):]
		version, err := strconv.ParseInt(tag[2], 10, 64)
		if err == nil && version > 0 && tag[1] == "" && tag[2] == strconv.FormatInt(version, 10) && !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	return versions, nil
}

// tagged is the first entity tag of a list, with what divides it from the next:
// its mark of weakness and its text.
var tagged = regexp.MustCompile(`^[ \t,]*(W/)?"([^"]*)"[ \t]*(?:,[ \t,]*|$)`)

// Stale is the fault of a condition that no longer holds.
func Stale() error {
	return fault.New(fault.Precondition, "precondition_failed", "the object has changed since it was read: read it again")
}
