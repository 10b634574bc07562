package api

import (
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// IfMatch is the condition of a change: embed it in an input.
type IfMatch struct {
	IfMatch string `header:"If-Match" doc:"The ETag that the object must still have; else 412"`
}

// ETag is the entity tag of a versioned object: its version in quotes.
func ETag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// Holds answers a Precondition fault unless one of the tags in header is that
// of version (RFC 9110 section 13.1.1: strong comparison, so W/ never matches).
// An empty header holds for every version.
func Holds(header string, version int64) error {
	if header == "" || strings.TrimSpace(header) == "*" {
		return nil
	}
	want := ETag(version)
	for tag := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(tag) == want {
			return nil
		}
	}
	return Stale()
}

// Expect reads an If-Match header down to the version that it asks for; 0 for
// any. Services check the version in the transaction of the change, which is
// the only place where the answer is certain. More than one tag, or one that is
// not ours, holds for no version: Precondition.
func Expect(header string) (int64, error) {
	header = strings.TrimSpace(header)
	if header == "" || header == "*" {
		return 0, nil
	}
	text, err := strconv.Unquote(header)
	if err != nil {
		return 0, Stale()
	}
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version <= 0 {
		return 0, Stale()
	}
	return version, nil
}

// Stale is the fault of a condition that no longer holds.
func Stale() error {
	return fault.New(fault.Precondition, "precondition_failed", "the object has changed since it was read: read it again")
}
