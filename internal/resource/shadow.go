package resource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// maxCompared is the largest number of resources that one search for shadows reads.
	maxCompared = 1000
	// maxShadows is how many resources one warning lists.
	maxShadows = 10
)

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
		if len(ids) == 0 {
			continue
		}
		open, err := openHosts(ctx, tx, env, slices.Min(ids), slices.Max(ids))
		if err != nil {
			return nil, err
		}
		guards, err := hostlessGuards(ctx, tx, env)
		if err != nil {
			return nil, err
		}
		for _, r := range open {
			if !slices.Contains(ids, r.ID) {
				continue
			}
			if behind := overlapping(r, guards); len(behind) > 0 {
				text := fmt.Sprintf("resource %d (%s) names the host %s and has no active control: requests to it do not reach the controls of %s", r.ID, r.Name, r.host(), named(behind))
				out = append(out, Warning{"shadows_controls", text, append([]int64{r.ID}, idsOf(behind)...)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Warning) int { return cmp.Compare(a.ResourceIDs[0], b.ResourceIDs[0]) })
	return out, nil
}

// Shadows finds the resources that keep requests from the controls of resource id. It finds
// some only if resource id names no host: those of the environment that name one, have no
// active control and can match the same requests. ids has the first 10; why explains them to
// people, and is empty if there are none.
func Shadows(ctx context.Context, tx *db.Tx, env scope.Env, id int64) (ids []int64, why string, err error) {
	guard, err := get(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && (guard.Environment != env || guard.host() != "") {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	open, err := openHosts(ctx, tx, env, 0, 0)
	if err != nil {
		return nil, "", err
	}
	before := overlapping(guard, open)
	if len(before) > 0 {
		why = fmt.Sprintf("requests to the hosts of %s do not come here: these have no active control, and name a host, so they take precedence over resource %d, which names none", named(before), id)
	}
	return idsOf(before), why, nil
}

// canShadow reports whether a resource may keep requests from others. A discovered resource
// does not: resources without a host take precedence over it.
func (r Resource) canShadow() bool { return r.host() != "" && !r.AutoDiscovered }

// overlapping returns those of list that can match the same request as r.
func overlapping(r Resource, list []Resource) []Resource {
	var out []Resource
	for _, o := range list {
		if overlap(r, o) {
			out = append(out, o)
		}
	}
	return out
}

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
	return strings.FieldsFunc(pattern, func(r rune) bool { return r == '/' })
}

func isWildcard(segment string) bool { return segment == "*" || strings.HasPrefix(segment, "{") }

func idsOf(list []Resource) []int64 {
	ids := make([]int64, 0, maxShadows)
	for _, r := range list[:min(len(list), maxShadows)] {
		ids = append(ids, r.ID)
	}
	return ids
}

// named lists resources for people.
func named(list []Resource) string {
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
