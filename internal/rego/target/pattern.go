package target

import (
	"errors"
	"strings"
)

// The wildcards of a pattern.
const (
	OneSegment = "*"
	Rest       = "**"
)

var (
	errPatternRest    = errors.New("`**` may only be the last segment")
	errPatternPartial = errors.New("a segment is either literal, `*`, `{name}` or `**`")
)

// ParsePattern splits a pattern into canonical segments: the two wildcards, and literals in the
// form of NormalisePath.
func ParsePattern(pattern string) ([]string, error) {
	if len(pattern) > maxPathBytes {
		return nil, errPathLong
	}
	var segs []string
	for s := range strings.SplitSeq(pattern, "/") {
		if len(segs) > 0 && segs[len(segs)-1] == Rest && s != "" {
			return nil, errPatternRest
		}
		switch {
		case s == "":
		case s == Rest:
			segs = append(segs, Rest)
		case s == OneSegment, strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") && strings.Count(s, "{") == 1:
			segs = append(segs, OneSegment)
		case strings.ContainsAny(s, "*{}"):
			return nil, errPatternPartial
		default:
			canon, err := NormalisePath("/" + s)
			if err != nil {
				return nil, err
			}
			if canon == "/" || strings.Count(canon, "/") != 1 {
				return nil, errPathDots
			}
			segs = append(segs, canon[1:])
		}
	}
	if len(segs) > maxSegments {
		return nil, errPathLong
	}
	return segs, nil
}
