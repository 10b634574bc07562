// Package negotiate reads the request header fields by which a client chooses among forms of an answer.
package negotiate

import (
	"strconv"
	"strings"
)

// TakesGzip reports whether Accept-Encoding allows gzip (RFC 9110, section 12.5.3): it names gzip
// or *, with a weight other than 0.
func TakesGzip(values []string) bool {
	star := false
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, params, _ := strings.Cut(one, ";")
		q := 1.0
		if _, weight, ok := strings.Cut(strings.ToLower(strings.ReplaceAll(params, " ", "")), "q="); ok {
			var err error
			if q, err = strconv.ParseFloat(weight, 64); err != nil {
				q = 0
			}
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip", "x-gzip":
			return q > 0
		case "*":
			star = q > 0
		}
	}
	return star
}

// Matches reports whether If-None-Match names a tag. The comparison is weak (RFC 9110, section
// 13.1.2).
func Matches(values []string, tag string) bool {
	tag = strings.TrimPrefix(tag, "W/")
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		if one == tag || one == "*" {
			return true
		}
	}
	return false
}
