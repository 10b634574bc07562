package resource

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxShadows is how many resources one warning lists.
const maxShadows = 10

// Warning reports an effect of a resource that its owner may not expect.
type Warning struct {
	Code        string  `json:"code" enum:"shadows_controls" doc:"shadows_controls: the resource names a host and has no active control. Requests to its host match it before resources without a host, and so do not reach their controls."`
	Message     string  `json:"message" doc:"Message for people."`
	ResourceIDs []int64 `json:"resource_ids" doc:"The resource, then those whose controls its requests do not reach, the first 10."`
}

// shadowing returns a warning for each resource of list that keeps requests from the
// controls of resources without a host.
func shadowing(ctx context.Context, tx *db.Tx, list []Resource) ([]Warning, error) {
	var out []Warning
	for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
		var ids []int64
		for _, r := range list {
			if r.Environment == env && r.canShadow() {
				ids = append(ids, r.ID)
			}
		}
		open, err := openAmong(ctx, tx, ids)
		if err != nil {
			return nil, err
		}
		behind, err := meeting(open, hostlessGuards(ctx, tx, env))
		if err != nil {
			return nil, err
		}
		for _, r := range open {
			if guards := behind[r.ID]; len(guards) > 0 {
				text := fmt.Sprintf("resource %d (%s) names the host %s and has no active control: requests to it do not reach the controls of %s", r.ID, r.Name, r.host(), nameList(guards))
				out = append(out, Warning{"shadows_controls", text, append([]int64{r.ID}, idsOf(guards)...)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Warning) int { return cmp.Compare(a.ResourceIDs[0], b.ResourceIDs[0]) })
	return out, nil
}

// Shadow is what keeps requests from the controls of one resource.
type Shadow struct {
	// IDs are the resources that match the requests first, the first 10.
	IDs []int64
	// Why explains it to people.
	Why string
}

// Shadows finds the resources that keep requests from the controls of the resources ids of an
// environment, and returns them by id of ids. It finds some only for resources that name no host:
// those of the environment that name one, have no active control and can match the same
// requests.
func Shadows(ctx context.Context, tx *db.Tx, env scope.Env, ids []int64) (map[int64]Shadow, error) {
	guards, err := withIDs(ctx, tx, env, ids)
	if err != nil {
		return nil, err
	}
	guards = slices.DeleteFunc(guards, func(r Resource) bool { return !r.hostless() })
	before, err := meeting(guards, openHosts(ctx, tx, env))
	if err != nil {
		return nil, err
	}
	out := map[int64]Shadow{}
	for id, open := range before {
		out[id] = Shadow{IDs: idsOf(open), Why: fmt.Sprintf("requests to the hosts of %s do not come here: these have no active control, and name a host, so they take precedence over resource %d, which names none", nameList(open), id)}
	}
	return out, nil
}

// meeting returns, by id, for each resource of list those of others that can match one of its
// requests: the first that others yields, at most maxShadows+1. others may be very many: it
// compares each with few resources of list, and stops when it has found enough.
func meeting(list []Resource, others iter.Seq2[Resource, error]) (map[int64][]Resource, error) {
	// Resources by the first segment of their paths; "" has those that match any.
	waiting := map[string][]Resource{}
	for _, r := range list {
		first := firstSegment(r.Path)
		waiting[first] = append(waiting[first], r)
	}
	found := map[int64][]Resource{}
	// compare drops from the waiting resources of one first segment those that have enough.
	compare := func(first string, other Resource) {
		rest := slices.DeleteFunc(waiting[first], func(r Resource) bool {
			if overlap(r, other) {
				found[r.ID] = append(found[r.ID], other)
			}
			return len(found[r.ID]) > maxShadows
		})
		if waiting[first] = rest; len(rest) == 0 {
			delete(waiting, first)
		}
	}
	if len(waiting) == 0 {
		return found, nil
	}
	for other, err := range others {
		if err != nil {
			return nil, err
		}
		if first := firstSegment(other.Path); first == "" {
			for each := range waiting {
				compare(each, other)
			}
		} else {
			compare(first, other)
			compare("", other)
		}
		if len(waiting) == 0 {
			break
		}
	}
	return found, nil
}

// firstSegment returns the first segment of a path pattern, equal for all spellings that overlap
// takes for the same. It is empty if the pattern has none, or if it is a wildcard.
func firstSegment(pattern string) string {
	for first := range strings.FieldsFuncSeq(pattern, isSlash) {
		if isWildcard(first) || first == "**" {
			return ""
		}
		return strings.ToLower(strings.ToUpper(first))
	}
	return ""
}

// hostless reports whether requests to every host can match a resource.
func (r Resource) hostless() bool { return r.host() == "" }

// canShadow reports whether a resource may keep requests from others. A discovered resource
// does not: resources without a host take precedence over it.
func (r Resource) canShadow() bool { return r.host() != "" && !r.AutoDiscovered }

// overlap reports whether one request can have the path and the method of both resources.
func overlap(a, b Resource) bool {
	shared := len(a.Methods) == 0 || len(b.Methods) == 0 || slices.ContainsFunc(a.Methods, func(m string) bool {
		return slices.Contains(b.Methods, m) || m == "HEAD" && slices.Contains(b.Methods, "GET") || m == "GET" && slices.Contains(b.Methods, "HEAD")
	})
	if !shared {
		return false
	}
	x, y := segments(a.Path), segments(b.Path)
	for i := 0; ; i++ {
		switch {
		case i < len(x) && x[i] == "**", i < len(y) && y[i] == "**":
			return true
		case i == len(x) || i == len(y):
			return len(x) == len(y)
		case !isWildcard(x[i]) && !isWildcard(y[i]) && !strings.EqualFold(x[i], y[i]):
			return false
		}
	}
}

func segments(pattern string) []string {
	return strings.FieldsFunc(pattern, isSlash)
}

func isSlash(r rune) bool { return r == '/' }

func isWildcard(segment string) bool { return segment == "*" || strings.HasPrefix(segment, "{") }

func idsOf(list []Resource) []int64 {
	ids := make([]int64, 0, maxShadows)
	for _, r := range list[:min(len(list), maxShadows)] {
		ids = append(ids, r.ID)
	}
	return ids
}

// nameList lists resources for people.
func nameList(list []Resource) string {
	names := make([]string, 0, maxShadows)
	for _, r := range list[:min(len(list), maxShadows)] {
		names = append(names, fmt.Sprintf("%d (%s)", r.ID, r.Name))
	}
	text := "resource " + strings.Join(names, ", ")
	if len(list) > 1 {
		text = "resources " + strings.Join(names, ", ")
	}
	if len(list) > maxShadows {
		text += " and more"
	}
	return text
}
