package access

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Data returns data.grants of an environment: for each subject a list of grants; undefined if there
// are none. It includes grants that have not begun; evaluations select by time.
func Data(ctx context.Context, tx *db.Tx, env scope.Env, now time.Time) (value.Value, error) {
	all, err := grantsIn(ctx, tx, env, now)
	if err != nil || len(all) == 0 {
		return value.Value{}, err
	}
	var members []value.Member
	for len(all) > 0 {
		subject := all[0].SubjectID
		var grants []value.Value
		for ; len(all) > 0 && all[0].SubjectID == subject; all = all[1:] {
			grants = append(grants, all[0].document())
		}
		members = append(members, value.Member{Key: subject, Value: value.Array(grants...)})
	}
	return value.Object(members...), nil
}

// document returns a grant in the form that controls see.
func (r Request) document() value.Value {
	members := []value.Member{
		{Key: "id", Value: value.Int(r.ID)},
		{Key: "resource", Value: value.Object(
			value.Member{Key: "id", Value: value.Int(r.ResourceID)},
			value.Member{Key: "name", Value: value.String(r.ResourceName)},
			value.Member{Key: "type", Value: value.String(r.ResourceType)},
		)},
		{Key: "action", Value: value.String(r.Action)},
		{Key: "starts_at", Value: value.String(r.StartsAt.UTC().Format(time.RFC3339Nano))},
		{Key: "starts_ns", Value: value.Int(r.StartsAt.UnixNano())},
		{Key: "expires_at", Value: value.String(r.ExpiresAt.UTC().Format(time.RFC3339Nano))},
		{Key: "expires_ns", Value: value.Int(r.ExpiresAt.UnixNano())},
	}
	if r.BreakGlass {
		members = append(members, value.Member{Key: "break_glass", Value: value.Bool(true)})
	}
	return value.Object(members...)
}
