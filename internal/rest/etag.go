package rest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// IfMatch is the condition of a change: embed it in an input.
type IfMatch struct {
	IfMatch string `header:"If-Match" doc:"The current ETag of the object, several separated by commas, or *. Any other value: 412"`
}

// condition returns the header.
func (m IfMatch) condition() string { return m.IfMatch }

// ETag returns the entity tag of a versioned object: its version in quotes.
func ETag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// maxTags limits the entity tags of one If-Match, because each may cost a transaction.
const maxTags = 16

// Matching runs a change under an If-Match header. One of the versions in the header must be the
// object's (RFC 9110 section 13.1.1: the comparison is strong, so W/ never matches). Only the
// transaction of the change can check that, and the service changes nothing if the version differs.
// So the versions are tried in turn. Version 0 means any version: there is no header, or it is *.
func Matching[T any](header string, change func(version int64) (T, error)) (T, error) {
	var out T
	versions, err := expected(header)
	if err != nil {
		return out, err
	}
	err = stale() // if no tag is a version
	for _, v := range versions {
		if out, err = change(v); !fault.Is(err, fault.Precondition) {
			break
		}
	}
	return out, err
}

// expected lists the versions of an If-Match header, each once.
func expected(header string) ([]int64, error) {
	header = strings.TrimSpace(header)
	if header == "" || header == "*" {
		return []int64{0}, nil
	}
	var versions []int64
	for n := 0; header != ""; n++ {
		if n == maxTags {
			return nil, badParameter("invalid_parameter", "header.If-Match", fmt.Sprintf("If-Match may list %d entity tags at most", maxTags))
		}
		tag := tagged.FindStringSubmatch(header)
		if tag == nil {
			break // the rest is not a list of entity tags, so it matches nothing
		}
		header = header[len(tag[0]):]
		version, err := strconv.ParseInt(tag[2], 10, 64)
		if err == nil && version >= 0 && tag[1] == "" && tag[2] == strconv.FormatInt(version, 10) && !slices.Contains(versions, exactly(version)) {
			versions = append(versions, exactly(version))
		}
	}
	return versions, nil
}

// exactly returns the version that a tag stands for. Settings have version 0 before their first
// change, and their tag is no wildcard.
func exactly(version int64) int64 {
	if version == 0 {
		return fault.Unchanged
	}
	return version
}

// tagged matches the first entity tag of a list with the separator after it. Its groups are the
// mark of a weak tag, and the text.
var tagged = regexp.MustCompile(`^[ \t,]*(W/)?"([^"]*)"[ \t]*(?:,[ \t,]*|$)`)

// stale returns the fault for a version that no object has. fault.CheckVersion has the one for an
// outdated version.
func stale() error {
	return fault.New(fault.Precondition, "precondition_failed", "the object has changed since it was read: read it again")
}
