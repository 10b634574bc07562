package scim

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scim/document"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Resource is a person or a group as a document, with its version.
type Resource struct {
	Document map[string]any
	Version  int64
}

func sameRoles(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// attributeNames maps members of a person's document to the attributes that controls read: the
// member name, in the core schema or an extension, and perhaps a part of it.
var attributeNames = [...]struct{ attribute, extension, name, part string }{
	{"display_name", "", "displayName", ""},
	{"given_name", "", "name", "givenName"},
	{"family_name", "", "name", "familyName"},
	{"title", "", "title", ""},
	{"user_type", "", "userType", ""},
	{"locale", "", "locale", ""},
	{"employee_number", document.EnterpriseURI, "employeeNumber", ""},
	{"cost_center", document.EnterpriseURI, "costCenter", ""},
	{"organization", document.EnterpriseURI, "organization", ""},
	{"division", document.EnterpriseURI, "division", ""},
	{"manager", document.EnterpriseURI, "manager", "value"},
}

// attributesOf returns the attributes that a person gets from a document.
func attributesOf(doc map[string]any) map[string]any {
	out := map[string]any{}
	for _, n := range attributeNames {
		from := doc
		if n.extension != "" {
			from, _ = doc[n.extension].(map[string]any)
		}
		v := from[n.name]
		if n.part != "" {
			m, _ := v.(map[string]any)
			v = m[n.part]
		}
		if text, ok := v.(string); ok && text != "" {
			out[n.attribute] = text
		}
	}
	return out
}

// profile returns the stored part of the directory's document that the person's record does not
// have; nil: the directory does not manage the person.
func (p person) profile() map[string]any {
	if p.Text == nil {
		return nil
	}
	var doc map[string]any
	if json.Unmarshal([]byte(*p.Text), &doc) != nil || doc == nil {
		doc = map[string]any{}
	}
	return doc
}

// roleValues returns the values of the attribute roles.
func (p person) roleValues() []string { return roleValues(p.profile()) }

func roleValues(doc map[string]any) []string {
	var out []string
	list, _ := doc["roles"].([]any)
	for _, v := range list {
		m, _ := v.(map[string]any)
		if value, ok := m["value"].(string); ok {
			out = append(out, value)
		}
	}
	return out
}

// version returns the version of the person, which each change increases: the time of the last
// change of the record or the profile, in microseconds.
func (p person) version() int64 {
	at := p.UpdatedAt
	if p.ProfileAt != nil && p.ProfileAt.After(at) {
		at = *p.ProfileAt
	}
	return at.UnixMicro()
}

// document returns the person as a document, with only the members that clients may write.
func (p person) document() map[string]any {
	doc := p.profile()
	if doc == nil {
		doc = map[string]any{}
		if name, ok := p.Attributes["display_name"].(string); ok {
			doc["displayName"] = name
		}
	}
	doc["userName"], doc["active"] = p.Username, p.Status == user.Active
	if p.ExternalID != nil && *p.ExternalID != "" {
		doc["externalId"] = *p.ExternalID
	}
	setAddress(doc, p.Email)
	part, _ := doc[document.EnterpriseURI].(map[string]any)
	switch {
	case p.Department != "" && part == nil:
		doc[document.EnterpriseURI] = map[string]any{"department": p.Department}
	case p.Department != "":
		part["department"] = p.Department
	case part != nil:
		if delete(part, "department"); len(part) == 0 {
			delete(doc, document.EnterpriseURI)
		}
	}
	return doc
}

// chosenEmail returns the index of the e-mail address that gatehouse uses: the primary one, or else the
// first of type work, or else the first; -1: there is none.
func chosenEmail(list []any) int {
	best := -1
	for i, v := range list {
		m, _ := v.(map[string]any)
		kind, _ := m["type"].(string)
		switch {
		case m["value"] == nil:
		case m["primary"] == true:
			return i
		case best < 0:
			best = i
		case strings.EqualFold(kind, "work"):
			if first, _ := list[best].(map[string]any); first["type"] != m["type"] {
				best = i
			}
		}
	}
	return best
}

// setAddress puts the address of the person's record into the list of addresses.
func setAddress(doc map[string]any, address string) {
	list, _ := doc["emails"].([]any)
	if i := chosenEmail(list); i >= 0 {
		list[i].(map[string]any)["value"] = address
		return
	}
	doc["emails"] = append(list, map[string]any{"value": address, "type": "work", "primary": true})
}

// addressOf returns the chosen e-mail address; if there is none, the user name, which is an
// address at many directories.
func addressOf(doc map[string]any) string {
	list, _ := doc["emails"].([]any)
	if i := chosenEmail(list); i >= 0 {
		address, _ := list[i].(map[string]any)["value"].(string)
		return address
	}
	name, _ := doc["userName"].(string)
	return name
}

// person returns the person as the resource that clients see.
func (s *Service) person(p person, groups []membership) Resource {
	doc := p.document()
	schemas := []any{document.UserURI}
	if _, ok := doc[document.EnterpriseURI]; ok {
		schemas = append(schemas, document.EnterpriseURI)
	}
	doc["schemas"], doc["id"] = schemas, p.ID
	var of []any
	for _, m := range groups {
		of = append(of, map[string]any{"value": m.GroupID, "display": m.Group, "$ref": s.location(s.groups, m.GroupID), "type": "direct"})
	}
	if of != nil {
		doc["groups"] = of
	}
	changed := time.UnixMicro(p.version()).UTC()
	doc["meta"] = s.meta(s.people, p.ID, p.CreatedAt, changed)
	return Resource{doc, p.version()}
}

func (s *Service) location(k *document.Kind, id string) string {
	return s.URL + Root + "/" + k.Path + "/" + url.PathEscape(id)
}

func (s *Service) meta(k *document.Kind, id string, created, changed time.Time) map[string]any {
	return map[string]any{
		"resourceType": k.Name, "created": created.Format(time.RFC3339Nano), "lastModified": changed.Format(time.RFC3339Nano),
		"location": s.location(k, id),
	}
}

// load reads a person as a resource.
func (s *Service) load(ctx context.Context, tx *db.Tx, id string) (Resource, error) {
	p, err := selectPerson(ctx, tx, id)
	if err != nil {
		return Resource{}, err
	}
	groups, err := selectGroupsOf(ctx, tx, []string{id})
	return s.person(p, groups), err
}

// User returns a person. Fault: NotFound.
func (s *Service) User(ctx context.Context, sc scope.Scope, id string) (Resource, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Resource, error) { return s.load(ctx, tx, id) })
}

// CreateUser adds a person. Faults: Conflict if a name or address is taken, BadRequest and Invalid
// for bad values, Forbidden beyond the tenant's limit.
func (s *Service) CreateUser(ctx context.Context, sc scope.Scope, sent map[string]any) (Resource, error) {
	doc, err := document.Normal(s.people, sent)
	if err != nil {
		return Resource{}, err
	}
	var r Resource
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		settings, err := selectRecord(ctx, tx)
		if err != nil {
			return err
		}
		st := settings.Settings
		d := user.Draft{Email: addressOf(doc), Attributes: attributesOf(doc), Department: departmentOf(doc), Roles: st.rolesOf(roleValues(doc))}
		d.Username, _ = doc["userName"].(string)
		status := user.Active
		if doc["active"] == false {
			status = user.Disabled
		}
		u, err := s.Users.Add(ctx, tx, s.grantScope(sc, st), d, status)
		if err != nil {
			return err
		}
		if err := s.putProfile(ctx, tx, u.ID, doc, u.UpdatedAt); err != nil {
			return err
		}
		r, err = s.load(ctx, tx, u.ID)
		return err
	})
	return r, err
}

func departmentOf(doc map[string]any) string {
	part, _ := doc[document.EnterpriseURI].(map[string]any)
	text, _ := part["department"].(string)
	return text
}

// putProfile stores the members of a document that document cannot compute from other columns.
// Fault: Conflict if another person has the externalId.
func (s *Service) putProfile(ctx context.Context, tx *db.Tx, id string, doc map[string]any, at time.Time) error {
	external, _ := doc["externalId"].(string)
	if external != "" {
		ids, err := selectByExternalID(ctx, tx, external)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(ids, func(other string) bool { return other != id }) {
			return fault.New(fault.Conflict, "already_exists", "a user with this externalId already exists")
		}
	}
	rest := maps.Clone(doc)
	for _, name := range []string{"userName", "active", "externalId", "schemas", "id", "meta", "groups"} {
		delete(rest, name)
	}
	text, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	return putProfile(ctx, tx, id, external, string(text), at)
}

// ReplaceUser replaces a person with a document. Members that are absent are removed, except active.
// version is the expected version; 0 means any. Faults: those of CreateUser, NotFound, Precondition,
// Forbidden for people who may do more than the directory can grant.
func (s *Service) ReplaceUser(ctx context.Context, sc scope.Scope, id string, version int64, sent map[string]any) (Resource, error) {
	doc, err := document.Normal(s.people, sent)
	if err != nil {
		return Resource{}, err
	}
	return s.editUser(ctx, sc, id, version, func(before map[string]any) (map[string]any, error) {
		if _, ok := doc["active"]; !ok {
			doc["active"] = before["active"]
		}
		return doc, nil
	})
}

// PatchUser applies a PATCH to a person, with the faults of ReplaceUser and document.Patch.
func (s *Service) PatchUser(ctx context.Context, sc scope.Scope, id string, version int64, body map[string]any) (Resource, error) {
	return s.editUser(ctx, sc, id, version, func(before map[string]any) (map[string]any, error) {
		return document.Patch(s.people, before, body)
	})
}

func (s *Service) editUser(ctx context.Context, sc scope.Scope, id string, version int64, edit func(before map[string]any) (map[string]any, error)) (Resource, error) {
	var r Resource
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		p, err := lockPerson(ctx, tx, id, version)
		if err != nil {
			return err
		}
		before := p.document()
		after, err := edit(document.Clone(before))
		if err != nil {
			return err
		}
		if err := s.replaceUser(ctx, tx, sc, p, before, after); err != nil {
			return err
		}
		r, err = s.load(ctx, tx, id)
		return err
	})
	return r, err
}

// lockPerson returns a person, locked until the transaction ends. Fault: Precondition if the person
// has another version.
func lockPerson(ctx context.Context, tx *db.Tx, id string, version int64) (person, error) {
	if _, err := user.LockByID(ctx, tx, id); err != nil {
		return person{}, err
	}
	p, err := selectPerson(ctx, tx, id)
	return fault.Current(p, err, "user", p.version(), version)
}

// replaceUser writes a change of a person. A directory changes people who may do more than it can
// grant only if it manages them. It cannot activate them again, change their externalId, with which
// they may sign in, or change their roles.
func (s *Service) replaceUser(ctx context.Context, tx *db.Tx, sc scope.Scope, p person, before, after map[string]any) error {
	settings, err := selectRecord(ctx, tx)
	if err != nil {
		return err
	}
	st, roles := settings.Settings, p.Roles
	as := s.grantScope(sc, st)
	if stronger := user.MayChange(as, p.User); stronger != nil {
		returns := before["active"] != true && after["active"] == true
		if p.Text == nil || returns || before["externalId"] != after["externalId"] {
			return fault.New(fault.Forbidden, "permission_denied", "this person may do more than the directory can grant, and is administered in gatehouse")
		}
		as = removalScope(sc)
	} else if st.manages() {
		groups, err := groupNames(ctx, tx, []string{p.ID})
		if err != nil {
			return err
		}
		roles = st.rolesOf(append(groups[p.ID], roleValues(after)...))
	}
	ch := p.changeTo(before, after, roles)
	if reflect.ValueOf(ch).IsZero() && p.Text != nil && sameJSON(before, after) {
		return nil
	}
	if !reflect.ValueOf(ch).IsZero() {
		if _, err := s.Users.UpdateWithin(ctx, tx, as, p.ID, ch); err != nil {
			return err
		}
	}
	at := db.Stamp(s.Now())
	if last := time.UnixMicro(p.version()).UTC(); !at.After(last) {
		at = last.Add(time.Microsecond)
	}
	return s.putProfile(ctx, tx, p.ID, after, at)
}

// changeTo returns the changes of the person's record that make it match a document and roles.
func (p person) changeTo(before, after map[string]any, roles []string) user.Change {
	var ch user.Change
	if name, _ := after["userName"].(string); name != p.Username {
		ch.Username = patch.Set(name)
	}
	if address := addressOf(after); address != p.Email {
		ch.Email = patch.Set(address)
	}
	if department := departmentOf(after); department != p.Department {
		ch.Department = patch.Set(department)
	}
	status := user.Disabled
	if after["active"] == true {
		status = user.Active
	}
	if status != p.Status {
		ch.Status = patch.Set(status)
	}
	if !sameRoles(roles, p.Roles) {
		ch.Roles = patch.Set(roles)
	}
	attributes := maps.Clone(p.Attributes)
	if attributes == nil {
		attributes = map[string]any{}
	}
	for name := range attributesOf(before) {
		delete(attributes, name)
	}
	maps.Copy(attributes, attributesOf(after))
	if !sameJSON(attributes, p.Attributes) {
		ch.Attributes = patch.Set(attributes)
	}
	return ch
}

// sameJSON reports whether two values are equal as stored JSON.
func sameJSON(a, b map[string]any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// DeleteUser removes a person whom the directory manages, or who may do no more than it can grant.
// version is the expected version; 0 means any. Faults: NotFound, Precondition, Forbidden.
func (s *Service) DeleteUser(ctx context.Context, sc scope.Scope, id string, version int64) error {
	return s.write(ctx, sc, func(tx *db.Tx) error {
		p, err := lockPerson(ctx, tx, id, version)
		if err != nil {
			return err
		}
		as := removalScope(sc)
		if p.Text == nil {
			settings, err := selectRecord(ctx, tx)
			if err != nil {
				return err
			}
			as = s.grantScope(sc, settings.Settings)
		}
		_, err = s.Users.Remove(ctx, tx, as, id)
		return err
	})
}
