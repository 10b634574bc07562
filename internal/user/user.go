// Package user has the people of a tenant: their records, names, roles and passwords. roles.go has
// the table of what a role allows. Package auth knows who is signed in; Service.Revoke informs it
// when a change must end sessions.
//
// Names are folded before they are compared (NFKC, case, space). User names and e-mail addresses
// share one table of names. So two people never differ only in case or in a look-alike encoding.
package user

import (
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of a person: a disabled one cannot sign in, and nothing made in
// that name works.
const (
	Active   = "active"
	Disabled = "disabled"
)

// User is a person of the tenant.
type User struct {
	ID          string         `json:"id" db:"id" doc:"Identifies the person, also as the subject of decisions."`
	Email       string         `json:"email" db:"email" doc:"E-mail address, unique in the tenant. It can be used to sign in."`
	Username    string         `json:"username" db:"username" doc:"Name to sign in with; unique in the tenant, ignoring case."`
	Roles       []string       `json:"roles" db:"roles" nullable:"false" doc:"Role names. platform_admin, admin, policy_author, resource_manager, operator, auditor and viewer grant permissions; other names are attributes that controls can read."`
	Department  string         `json:"department" db:"department" doc:"Department, for controls to refer to."`
	Attributes  map[string]any `json:"attributes" db:"attributes" doc:"Free-form attributes, such as a clearance level or the manager."`
	Permissions []string       `json:"permissions,omitempty" db:"-" doc:"Scopes held; only when reading the current user."`
	Status      string         `json:"status" db:"status" enum:"active,disabled" doc:"A disabled person cannot sign in."`
	CreatedAt   time.Time      `json:"created_at" db:"created_at" doc:"When the person was added."`
	UpdatedAt   time.Time      `json:"updated_at" db:"updated_at" doc:"When the record last changed."`
	LastLoginAt *time.Time     `json:"last_login_at" db:"last_login_at" doc:"When the person last signed in; null if never."`
	// PasswordHash is a PHC string; empty for people without a password.
	PasswordHash string `json:"-" db:"password_hash"`
}

// Draft describes a person to create.
type Draft struct {
	ID         string         `json:"id,omitempty" minLength:"1" maxLength:"128" pattern:"^[A-Za-z0-9._@:+-]+$" doc:"Id of the person in your own directory, so that decisions can name it; unique in the tenant. Absent: a random one."`
	Email      string         `json:"email" format:"email" minLength:"3" maxLength:"254" doc:"E-mail address; unique in the tenant."`
	Username   string         `json:"username" minLength:"1" maxLength:"128" doc:"Name to sign in with; unique in the tenant, ignoring case."`
	Password   string         `json:"password,omitempty" minLength:"8" maxLength:"1024" writeOnly:"true" doc:"Absent: the person cannot sign in with a password."`
	Roles      []string       `json:"roles,omitempty" maxItems:"64" nullable:"false" doc:"Role names; display names such as Resource Manager are converted. The caller must hold what they allow."`
	Department string         `json:"department,omitempty" maxLength:"256" doc:"Department."`
	Attributes map[string]any `json:"attributes,omitempty" doc:"Free-form attributes."`
}

// Offences returns the offences of a draft that the schema of the API cannot express.
func (d Draft) Offences() []fault.Detail { return fault.Offences(d.check()) }

// check returns all offences of a draft.
func (d Draft) check() error {
	u := User{Email: strings.TrimSpace(d.Email), Username: strings.TrimSpace(d.Username), Roles: FoldRoles(d.Roles)}
	var weak, badID error
	if d.ID != "" {
		badID = checkID("/id", d.ID)
	}
	if d.Password != "" {
		weak = CheckPassword("/password", d.Password, u.Username, u.Email)
	}
	return fault.Join(badID, checkNames(User{}, u), weak)
}

// checkID checks an id. It must also be usable as one segment of a path.
func checkID(pointer, id string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9._@:+-]{1,128}$`).MatchString(id) {
		return fault.Invalidf(pointer, "must have 1 to 128 characters of A-Z a-z 0-9 . _ @ : + -")
	}
	if id == "." || id == ".." {
		return fault.Invalidf(pointer, "must not be %s", id)
	}
	return checkNoAgent(pointer, id)
}

// checkNoAgent refuses a name that would identify an AI agent as a subject of decisions.
func checkNoAgent(pointer, name string) error {
	if scope.NamesAgent(name) {
		return fault.Invalidf(pointer, "must not begin with %s: AI agents have such ids", scope.AgentPrefix)
	}
	return nil
}

// Change is a change of a person. Absent members stay unchanged.
type Change struct {
	Email      patch.Field[string]         `json:"email,omitzero" format:"email" minLength:"3" maxLength:"254" doc:"New e-mail address."`
	Username   patch.Field[string]         `json:"username,omitzero" minLength:"1" maxLength:"128" doc:"New name to sign in with."`
	Password   patch.Field[string]         `json:"password,omitzero" minLength:"8" maxLength:"1024" writeOnly:"true" doc:"New password; ends the person's sessions and own API keys."`
	KeepKeys   bool                        `json:"keep_api_keys,omitempty" writeOnly:"true" doc:"With password: the person's own API keys stay valid."`
	Roles      patch.Field[[]string]       `json:"roles,omitzero" maxItems:"64" doc:"New roles; a change ends the person's sessions."`
	Department patch.Field[string]         `json:"department,omitzero" maxLength:"256" doc:"Department."`
	Attributes patch.Field[map[string]any] `json:"attributes,omitzero" doc:"Free-form attributes; replaces all of them."`
	Status     patch.Field[string]         `json:"status,omitzero" enum:"active,disabled" doc:"disabled ends the person's sessions at once. The person's own API keys are refused until the person is active again."`
}

// RolesChange is the body of PUT /users/{user_id}/roles.
type RolesChange struct {
	Roles  []string `json:"roles" maxItems:"64" nullable:"false" doc:"The person's new roles."`
	Reason string   `json:"reason,omitempty" maxLength:"1000" doc:"The reason; stored in the audit."`
}

// Filter narrows a list of people.
type Filter struct {
	Skip, Limit int
	// Search matches a part of the user name or the e-mail address, folded.
	Search string
}

// Page is one page of people.
type Page struct {
	Users []User `json:"users" nullable:"false" doc:"The people, oldest first."`
	Total int64  `json:"total" doc:"Total number that match the filter."`
}

// Fold returns the form of a name in which it is compared: compatibility composition (NFKC), case
// folding, and no surrounding space. Names with the same form are one name, so nobody can avoid a
// lockout by another spelling.
func Fold(name string) string {
	// What no store takes as text becomes what no name may hold.
	name = strings.ReplaceAll(strings.ToValidUTF8(name, "\ufffd"), "\x00", "\ufffd")
	return norm.NFKC.String(cases.Fold().String(norm.NFKC.String(strings.TrimSpace(name))))
}

// checkName refuses names that cannot be distinguished or displayed.
func checkName(pointer, name string) error {
	if Fold(name) == "" {
		return fault.Invalidf(pointer, "must not be empty")
	}
	if !utf8.ValidString(name) {
		return fault.Invalidf(pointer, "must be valid UTF-8")
	}
	for _, r := range name {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError {
			return fault.Invalidf(pointer, "must not have control or invisible characters")
		}
	}
	return nil
}

// checkEmail requires a bare address. With a display name or a comment, two people could have the
// same mailbox.
func checkEmail(pointer, address string) error {
	if err := checkName(pointer, address); err != nil {
		return err
	}
	if a, err := mail.ParseAddress(address); err != nil || a.Address != address {
		return fault.Invalidf(pointer, "must be an e-mail address and nothing else")
	}
	return nil
}

// CheckPassword checks a password. Beyond a few forbidden values, only its length counts (NIST SP
// 800-63B section 5.1.1).
func CheckPassword(pointer, password string, names ...string) error {
	if utf8.RuneCountInString(password) < 8 {
		return fault.Invalidf(pointer, "must be at least 8 characters long")
	}
	if len(password) > MaxPassword {
		return fault.Invalidf(pointer, "must be at most %d bytes long", MaxPassword)
	}
	if slices.Contains(names, password) {
		return fault.Invalidf(pointer, "must not be the user name or the e-mail address")
	}
	return nil
}

// SessionEnd says what ends with a change of a person.
type SessionEnd uint8

const (
	// EndsNothing leaves sessions and keys as they are.
	EndsNothing SessionEnd = iota
	// EndsSessions ends the person's sessions.
	EndsSessions
	// EndsKeys ends the sessions and the person's own API keys.
	EndsKeys
	// EndsAll ends both, and forgets where the person signed in from.
	EndsAll
)

// decideChange applies ch to u, and returns what must end because of it.
func decideChange(u User, ch Change) (after User, ends SessionEnd) {
	after = u
	ch.Email.Apply(&after.Email)
	ch.Username.Apply(&after.Username)
	ch.Department.Apply(&after.Department)
	ch.Attributes.Apply(&after.Attributes)
	if after.Attributes == nil {
		after.Attributes = map[string]any{}
	}
	if ch.Status.Sent && !ch.Status.Null {
		after.Status = ch.Status.Value
	}
	if ch.Roles.Sent {
		after.Roles = FoldRoles(ch.Roles.Value)
	}
	after.Email, after.Username = strings.TrimSpace(after.Email), strings.TrimSpace(after.Username)
	switch {
	case ch.Password.Sent && !ch.KeepKeys:
		ends = EndsKeys
	case ch.Password.Sent || !sameRoles(u.Roles, after.Roles) || u.Status == Active && after.Status != Active:
		ends = EndsSessions
	}
	return after, ends
}

// sameRoles compares roles regardless of order.
func sameRoles(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
