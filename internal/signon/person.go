package signon

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// maxAttribute is the largest size of an attribute from a claim, as JSON in bytes.
const maxAttribute = 4 << 10

// facts are the claims of a provider about a person: those of the ID token, and those of the user
// information, with the settings that map them.
type facts struct {
	settings    Settings
	token, info value.Value
}

// claim returns a claim by its name or JSON pointer. The ID token takes precedence over the user
// information.
func (f facts) claim(name string) value.Value {
	for _, doc := range []value.Value{f.token, f.info} {
		if v := lookup(doc, name); v.Defined() && !v.IsNull() {
			return v
		}
	}
	return value.Value{}
}

func lookup(doc value.Value, name string) value.Value {
	if v := doc.Get(name); v.Defined() || !strings.HasPrefix(name, "/") {
		return v
	}
	path := strings.Split(name[1:], "/")
	for i, part := range path {
		path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return doc.At(path...)
}

// incomplete reports whether the ID token lacks a claim that the settings need.
func (f facts) incomplete() bool {
	wanted := []string{"email", "email_verified"}
	for _, name := range []string{f.settings.RoleClaim, f.settings.DepartmentClaim} {
		if name != "" {
			wanted = append(wanted, name)
		}
	}
	wanted = slices.AppendSeq(wanted, maps.Values(f.settings.AttributeClaims))
	return slices.ContainsFunc(wanted, func(name string) bool { return !lookup(f.token, name).Defined() })
}

// verifiedEmail returns the person's e-mail address, which the provider must have verified.
// email_verified counts only for the address in the same document. Fault: email_not_verified.
func (f facts) verifiedEmail() (string, error) {
	for _, doc := range []value.Value{f.token, f.info} {
		verified := doc.Get("email_verified")
		if !verified.Defined() {
			continue
		}
		email, _ := doc.Get("email").Str()
		if text, _ := verified.Str(); email != "" && (verified.True() || text == "true") {
			return email, nil
		}
		break
	}
	return "", fault.New(fault.Forbidden, "email_not_verified", "the identity provider has not verified your e-mail address")
}

// checkDomain refuses people whose e-mail address is not at an allowed domain.
func (f facts) checkDomain() error {
	if len(f.settings.EmailDomains) == 0 {
		return nil
	}
	email, err := f.verifiedEmail()
	if err != nil {
		return err
	}
	if at := strings.LastIndexByte(email, '@'); at < 0 || !slices.Contains(f.settings.EmailDomains, foldDomain(email[at+1:])) {
		return fault.New(fault.Forbidden, "email_domain_denied", "e-mail addresses of your domain may not sign in here")
	}
	return nil
}

// roles returns the roles that the role claim maps to; false: the provider does not manage roles,
// and the roles are the default ones.
func (f facts) roles() ([]string, bool) {
	if f.settings.RoleClaim == "" {
		return f.settings.DefaultRoles, false
	}
	out := slices.Clone(f.settings.DefaultRoles)
	for _, v := range texts(f.claim(f.settings.RoleClaim)) {
		out = append(out, f.settings.RoleMap[v]...)
	}
	return user.FoldRoles(out), true
}

// department returns the department claim, shortened to 256 characters; false: the provider does
// not manage departments.
func (f facts) department() (string, bool) {
	if f.settings.DepartmentClaim == "" {
		return "", false
	}
	text, _ := f.claim(f.settings.DepartmentClaim).Str()
	if r := []rune(text); len(r) > 256 {
		text = string(r[:256])
	}
	return text, true
}

// attributes returns a person's attributes, updated from the claims. An attribute whose claim is
// absent is removed.
func (f facts) attributes(before map[string]any) map[string]any {
	out := maps.Clone(before)
	if out == nil {
		out = map[string]any{}
	}
	put := func(name string, v value.Value) {
		delete(out, name)
		if v.Defined() && len(v.AppendJSON(nil)) <= maxAttribute {
			out[name] = v.Any()
		}
	}
	for name, claim := range f.settings.AttributeClaims {
		put(name, f.claim(claim))
	}
	// How the person signed in comes from the signed token only.
	put(user.MethodsAttribute, f.token.Get("amr"))
	put(user.LevelAttribute, f.token.Get("acr"))
	return out
}

// person returns the person with an identity, or adds them, and updates what the provider manages.
func (s *Service) person(ctx context.Context, tx *db.Tx, sc scope.Scope, f facts, id user.IdentityDraft) (user.User, error) {
	if err := f.checkDomain(); err != nil {
		return user.User{}, err
	}
	system := auth.SystemScope(sc.Tenant, "sign-on", sc.RequestID)
	system.Actor.IP = sc.Actor.IP
	u, err := user.ByIdentity(ctx, tx, id.Issuer, id.Subject)
	switch {
	case err == nil:
		u, err = s.refresh(ctx, tx, system, f, u)
	case fault.Is(err, fault.NotFound):
		u, err = s.linkOrAdd(ctx, tx, system, f, id)
	}
	if err != nil {
		return u, err
	}
	now := s.Now()
	if err := user.RecordIdentityUse(ctx, tx, id.Issuer, id.Subject, now); err != nil {
		return u, err
	}
	return u, user.RecordSignIn(ctx, tx, u.ID, now, "")
}

// linkOrAdd links the identity to the person whom the tenant's directory added with this subject.
// If there is none, it adds the person.
func (s *Service) linkOrAdd(ctx context.Context, tx *db.Tx, system scope.Scope, f facts, id user.IdentityDraft) (user.User, error) {
	known, err := s.Provisioned(ctx, tx, id.Subject)
	if fault.Is(err, fault.NotFound) {
		return s.addPerson(ctx, tx, system, f, id)
	}
	if err != nil {
		return user.User{}, err
	}
	u, err := s.Users.LinkWithin(ctx, tx, system, known, id)
	if err != nil {
		return user.User{}, err
	}
	return s.refresh(ctx, tx, system, f, u)
}

// addPerson adds an unknown person. It never links an account by its e-mail address, which proves
// nothing: only an administrator may do that.
func (s *Service) addPerson(ctx context.Context, tx *db.Tx, system scope.Scope, f facts, id user.IdentityDraft) (user.User, error) {
	if !f.settings.CreateUsers {
		return user.User{}, fault.New(fault.Forbidden, "no_account", "you have no account here; an administrator must link one to your identity")
	}
	email, err := f.verifiedEmail()
	if err != nil {
		return user.User{}, err
	}
	if _, err := user.ByName(ctx, tx, email); err == nil {
		return user.User{}, fault.New(fault.Conflict, "account_exists", "there is an account with your e-mail address; an administrator must link it to your identity")
	} else if !errors.Is(err, db.ErrNoRows) {
		return user.User{}, err
	}
	d := user.Draft{Email: email, Username: email, Attributes: f.attributes(nil)}
	d.Roles, _ = f.roles()
	d.Department, _ = f.department()
	return s.Users.Enrol(ctx, tx, system, d, id)
}

// refresh updates what the provider manages of a person, if it changed. If the directory manages
// the person, roles and department stay.
func (s *Service) refresh(ctx context.Context, tx *db.Tx, system scope.Scope, f facts, u user.User) (user.User, error) {
	if u.Status != user.Active {
		return u, fault.New(fault.Forbidden, "account_disabled", "your account is disabled")
	}
	var ch user.Change
	directory, err := s.Managed(ctx, tx, u.ID)
	if err != nil {
		return u, err
	}
	if roles, managed := f.roles(); managed && !directory && !sameSet(roles, u.Roles) {
		ch.Roles = patch.Set(roles)
	}
	if department, managed := f.department(); managed && !directory && department != u.Department {
		ch.Department = patch.Set(department)
	}
	if attributes := f.attributes(u.Attributes); !sameJSON(attributes, u.Attributes) {
		ch.Attributes = patch.Set(attributes)
	}
	if reflect.ValueOf(ch).IsZero() {
		return u, nil
	}
	return s.Users.UpdateWithin(ctx, tx, system, u.ID, ch)
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// sameJSON reports whether two values are equal as stored JSON: numbers of different Go types may
// be equal.
func sameJSON(a, b map[string]any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}
