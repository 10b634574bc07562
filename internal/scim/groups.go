package scim

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scim/document"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// group returns a group as the document that clients see.
func (s *Service) group(g group, members []membership) Resource {
	doc := map[string]any{
		"schemas": []any{document.GroupURI}, "id": g.ID, "displayName": g.Name, "meta": s.meta(s.groups, g.ID, g.CreatedAt, g.UpdatedAt),
	}
	if g.ExternalID != "" {
		doc["externalId"] = g.ExternalID
	}
	var list []any
	for _, m := range members {
		list = append(list, map[string]any{"value": m.UserID, "display": m.Username, "$ref": s.location(s.people, m.UserID), "type": "User"})
	}
	if list != nil {
		doc["members"] = list
	}
	return Resource{doc, g.UpdatedAt.UnixMicro()}
}

func (s *Service) loadGroup(ctx context.Context, tx *db.Tx, id string, members bool) (Resource, error) {
	g, err := selectGroup(ctx, tx, id)
	if err != nil {
		return Resource{}, err
	}
	var list []membership
	if members {
		list, err = selectMembers(ctx, tx, []string{id})
	}
	return s.group(g, list), err
}

// Group returns a group, with its members if the selection includes them. Fault: NotFound.
func (s *Service) Group(ctx context.Context, sc scope.Scope, id string, sel document.Selection) (Resource, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Resource, error) { return s.loadGroup(ctx, tx, id, sel.Wants(s.groups, "members")) })
}

// CreateGroup adds a group, and gives its members the roles that it maps to. Faults: Conflict if
// the name is taken, invalid_value for members who are not users of the tenant, Forbidden beyond
// maxGroups and for members who may do more than the directory can grant.
func (s *Service) CreateGroup(ctx context.Context, sc scope.Scope, sent map[string]any) (Resource, error) {
	doc, err := document.Normal(s.groups, sent)
	if err != nil {
		return Resource{}, err
	}
	var r Resource
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		n, err := countGroups(ctx, tx)
		if err != nil {
			return err
		}
		if n >= maxGroups {
			return fault.Newf(fault.Forbidden, "limit_exceeded", "a tenant may have %d groups", maxGroups)
		}
		now := db.Stamp(s.Now())
		r, err = s.putGroup(ctx, tx, sc, group{ID: s.NewID(), CreatedAt: now, UpdatedAt: now}, nil, doc, "GROUP_CREATED")
		return err
	})
	return r, err
}

// ReplaceGroup replaces a group with a document. version is the expected version; 0 means any.
// Faults: those of CreateGroup, NotFound, Precondition.
func (s *Service) ReplaceGroup(ctx context.Context, sc scope.Scope, id string, version int64, sent map[string]any) (Resource, error) {
	doc, err := document.Normal(s.groups, sent)
	if err != nil {
		return Resource{}, err
	}
	return s.editGroup(ctx, sc, id, version, func(map[string]any) (map[string]any, error) { return doc, nil })
}

// PatchGroup applies a PATCH to a group, with the faults of ReplaceGroup and document.Patch.
func (s *Service) PatchGroup(ctx context.Context, sc scope.Scope, id string, version int64, body map[string]any) (Resource, error) {
	return s.editGroup(ctx, sc, id, version, func(before map[string]any) (map[string]any, error) {
		return document.Patch(s.groups, before, body)
	})
}

func (s *Service) editGroup(ctx context.Context, sc scope.Scope, id string, version int64, edit func(before map[string]any) (map[string]any, error)) (Resource, error) {
	var r Resource
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		g, members, err := groupAt(ctx, tx, id, version)
		if err != nil {
			return err
		}
		after, err := edit(s.group(g, members).Document)
		if err != nil {
			return err
		}
		r, err = s.putGroup(ctx, tx, sc, g, members, after, "GROUP_UPDATED")
		return err
	})
	return r, err
}

// groupAt returns a group and its members. Fault: Precondition if the group has another version.
func groupAt(ctx context.Context, tx *db.Tx, id string, version int64) (group, []membership, error) {
	g, err := selectGroup(ctx, tx, id)
	if g, err = fault.Current(g, err, "group", g.UpdatedAt.UnixMicro(), version); err != nil {
		return g, nil, err
	}
	members, err := selectMembers(ctx, tx, []string{id})
	return g, members, err
}

// putGroup writes a group and its members, and updates the roles of those who joined, who left, or
// whose group has a new name.
func (s *Service) putGroup(ctx context.Context, tx *db.Tx, sc scope.Scope, before group, members []membership, doc map[string]any, kind string) (Resource, error) {
	after := before
	after.Name, _ = doc["displayName"].(string)
	after.ExternalID, _ = doc["externalId"].(string)
	if user.Fold(after.Name) == "" || len(after.Name) > 256 {
		return Resource{}, fault.New(fault.BadRequest, "invalid_value", "displayName must have 1 to 256 bytes")
	}
	had, wanted := map[string]bool{}, map[string]bool{}
	for _, m := range members {
		had[m.UserID] = true
	}
	var joined, left []string
	for _, v := range listOf(doc["members"]) {
		m, _ := v.(map[string]any)
		id, _ := m["value"].(string)
		if !had[id] && !wanted[id] {
			joined = append(joined, id)
		}
		wanted[id] = true
	}
	for _, m := range members {
		if !wanted[m.UserID] {
			left = append(left, m.UserID)
		}
	}
	renamed := after.Name != before.Name
	if kind == "GROUP_UPDATED" && !renamed && after.ExternalID == before.ExternalID && len(joined)+len(left) == 0 {
		return s.loadGroup(ctx, tx, before.ID, true)
	}
	if after.UpdatedAt = db.Stamp(s.Now()); kind == "GROUP_UPDATED" && !after.UpdatedAt.After(before.UpdatedAt) {
		after.UpdatedAt = before.UpdatedAt.Add(time.Microsecond)
	}
	if err := putGroup(ctx, tx, after); err != nil {
		return Resource{}, err
	}
	if err := s.changeMembers(ctx, tx, sc, after.ID, joined, left); err != nil {
		return Resource{}, err
	}
	touched := append(joined, left...)
	if renamed {
		for id := range wanted {
			touched = append(touched, id)
		}
	}
	if err := s.reassignRoles(ctx, tx, sc, touched); err != nil {
		return Resource{}, err
	}
	err := audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: kind, Object: "group", ObjectID: after.ID, ObjectName: after.Name, EventContext: map[string]any{"joined": len(joined), "left": len(left)},
	})
	if err != nil {
		return Resource{}, err
	}
	return s.loadGroup(ctx, tx, after.ID, true)
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

// changeMembers writes who joined a group and who left it. The directory manages people who join
// from then on. It refuses people whom it does not manage yet and who may do more than it can grant.
func (s *Service) changeMembers(ctx context.Context, tx *db.Tx, sc scope.Scope, groupID string, joined, left []string) error {
	for _, id := range left {
		if err := deleteMember(ctx, tx, groupID, id); err != nil {
			return err
		}
	}
	if len(joined) == 0 {
		return nil
	}
	if _, err := lockPeople(ctx, tx, joined); err != nil { // so that a removal ends the memberships, too
		return err
	}
	people, err := selectPeopleIn(ctx, tx, joined)
	if err != nil {
		return err
	}
	if len(people) < len(joined) {
		return fault.New(fault.BadRequest, "invalid_value", "a member of the group is not a user of this tenant")
	}
	settings, err := selectRecord(ctx, tx)
	if err != nil {
		return err
	}
	as := s.grantScope(sc, settings.Settings)
	for _, p := range people {
		if p.Text != nil {
			continue
		}
		if err := user.MayChange(as, p.User); err != nil {
			return fault.New(fault.Forbidden, "permission_denied", "a member of the group may do more than the directory can grant, and is administered in gatehouse").Because(err)
		}
		if err := s.putProfile(ctx, tx, p.ID, p.document(), p.UpdatedAt); err != nil {
			return err
		}
	}
	return insertMembers(ctx, tx, groupID, joined)
}

// reassignRoles computes the roles of people from their groups again.
func (s *Service) reassignRoles(ctx context.Context, tx *db.Tx, sc scope.Scope, ids []string) error {
	settings, err := selectRecord(ctx, tx)
	if err != nil {
		return err
	}
	slices.Sort(ids)
	return s.assignRoles(ctx, tx, s.grantScope(sc, settings.Settings), settings.Settings, slices.Compact(ids))
}

// DeleteGroup removes a group. Its members lose the roles that it gave. version is the expected
// version; 0 means any. Faults: NotFound, Precondition.
func (s *Service) DeleteGroup(ctx context.Context, sc scope.Scope, id string, version int64) error {
	return s.write(ctx, sc, func(tx *db.Tx) error {
		g, members, err := groupAt(ctx, tx, id, version)
		if err != nil {
			return err
		}
		if err := deleteGroup(ctx, tx, id); err != nil {
			return err
		}
		ids := make([]string, len(members))
		for i, m := range members {
			ids[i] = m.UserID
		}
		if err := s.reassignRoles(ctx, tx, sc, ids); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: "GROUP_DELETED", Object: "group", ObjectID: g.ID, ObjectName: g.Name})
	})
}
