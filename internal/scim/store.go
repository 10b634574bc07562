package scim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// record is the settings as stored. Version is 0 if none are stored.
type record struct {
	Settings  Settings  `db:"-"`
	Text      string    `db:"settings"`
	Version   int64     `db:"version"`
	UpdatedAt time.Time `db:"updated_at"`
}

func selectRecord(ctx context.Context, tx *db.Tx) (record, error) {
	r, err := db.One[record](ctx, tx, `SELECT settings, version, updated_at FROM scim_settings WHERE id = 1`)
	if errors.Is(err, db.ErrNoRows) {
		r.Settings = Settings{}.normal()
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(r.Text), &r.Settings)
	}
	return r, err
}

func putRecord(ctx context.Context, tx *db.Tx, r record) error {
	text, err := json.Marshal(r.Settings)
	if err != nil {
		return err
	}
	return tx.Do(ctx, `INSERT INTO scim_settings (id, settings, version, updated_at) VALUES (1, $1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET settings = excluded.settings, version = excluded.version, updated_at = excluded.updated_at`,
		string(text), r.Version, r.UpdatedAt)
}

// person is a user, with what the directory stored. ExternalID, Text and ProfileAt are nil for
// people whom the directory does not manage.
type person struct {
	user.User
	ExternalID *string    `db:"external_id"`
	Text       *string    `db:"profile"`
	ProfileAt  *time.Time `db:"profile_at"`
}

const (
	personColumns = `SELECT u.id, u.email, u.username, u.password_hash, u.roles, u.department, u.attributes, u.status, u.created_at, u.updated_at, u.last_login_at,
		p.external_id, p.profile, p.updated_at AS profile_at`
	personTables = ` FROM users u LEFT JOIN scim_people p ON p.user_id = u.id`
)

func selectPerson(ctx context.Context, tx *db.Tx, id string) (person, error) {
	p, err := db.One[person](ctx, tx, personColumns+personTables+` WHERE u.id = $1`, id)
	if errors.Is(err, db.ErrNoRows) {
		return p, fault.NotFoundf("there is no such user")
	}
	return p, err
}

// selectPeople returns a page of people, oldest first.
func selectPeople(ctx context.Context, tx *db.Tx, skip, limit int) ([]person, error) {
	return db.All[person](ctx, tx, personColumns+personTables+` ORDER BY u.created_at, u.id LIMIT $1 OFFSET $2`, limit, skip)
}

// selectPeopleAfter returns the next people after one of them, oldest first.
func selectPeopleAfter(ctx context.Context, tx *db.Tx, after person, limit int) ([]person, error) {
	return db.All[person](ctx, tx, personColumns+personTables+` WHERE u.created_at > $1 OR u.created_at = $1 AND u.id > $2 ORDER BY u.created_at, u.id LIMIT $3`,
		after.CreatedAt, after.ID, limit)
}

// selectPeopleIn returns people by their ids, in no order. Unknown ids are left out.
func selectPeopleIn(ctx context.Context, tx *db.Tx, ids []string) ([]person, error) {
	return db.AllIn[person](ctx, tx, personColumns+personTables+` WHERE u.id IN ($in)`, ids)
}

// lockPeople locks people until tx ends, and returns the ids of those who exist.
func lockPeople(ctx context.Context, tx *db.Tx, ids []string) ([]string, error) {
	return db.AllIn[string](ctx, tx, `UPDATE users SET status = status WHERE id IN ($in) RETURNING id`, ids)
}

func countPeople(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM users`)
}

func countManaged(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM scim_people`)
}

func selectManaged(ctx context.Context, tx *db.Tx) ([]string, error) {
	return db.All[string](ctx, tx, `SELECT user_id FROM scim_people ORDER BY user_id`)
}

func selectByExternalID(ctx context.Context, tx *db.Tx, externalID string) ([]string, error) {
	return db.All[string](ctx, tx, `SELECT user_id FROM scim_people WHERE external_id = $1 LIMIT 2`, externalID)
}

func selectByFolded(ctx context.Context, tx *db.Tx, name string) ([]string, error) {
	return db.All[string](ctx, tx, `SELECT user_id FROM user_names WHERE name = $1`, user.Fold(name))
}

func putProfile(ctx context.Context, tx *db.Tx, userID, externalID, profile string, at time.Time) error {
	return tx.Do(ctx, `INSERT INTO scim_people (user_id, external_id, profile, updated_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (user_id) DO UPDATE SET external_id = excluded.external_id, profile = excluded.profile, updated_at = excluded.updated_at`,
		userID, externalID, profile, at)
}

// deletePerson removes what the directory stored about a person.
func deletePerson(ctx context.Context, tx *db.Tx, userID string) error {
	for _, q := range []string{`DELETE FROM scim_people WHERE user_id = $1`, `DELETE FROM scim_members WHERE user_id = $1`} {
		if err := tx.Do(ctx, q, userID); err != nil {
			return err
		}
	}
	return nil
}

// touchGroupsOf increases the versions of a person's groups.
func touchGroupsOf(ctx context.Context, tx *db.Tx, userID string) error {
	return tx.Do(ctx, `UPDATE scim_groups SET updated_at = updated_at + 1 WHERE id IN (SELECT group_id FROM scim_members WHERE user_id = $1)`, userID)
}

// group is a group without its members.
type group struct {
	ID         string    `db:"id"`
	Name       string    `db:"name"`
	ExternalID string    `db:"external_id"`
	CreatedAt  time.Time `db:"created_at"`
	UpdatedAt  time.Time `db:"updated_at"`
}

const groupColumns = `SELECT id, name, external_id, created_at, updated_at FROM scim_groups`

func selectGroup(ctx context.Context, tx *db.Tx, id string) (group, error) {
	g, err := db.One[group](ctx, tx, groupColumns+` WHERE id = $1`, id)
	if errors.Is(err, db.ErrNoRows) {
		return g, fault.NotFoundf("there is no such group")
	}
	return g, err
}

func selectGroups(ctx context.Context, tx *db.Tx) ([]group, error) {
	return db.All[group](ctx, tx, groupColumns+` ORDER BY created_at, id`)
}

func countGroups(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM scim_groups`)
}

// putGroup adds or changes a group. Fault: Conflict if another group has the name, ignoring case.
func putGroup(ctx context.Context, tx *db.Tx, g group) error {
	others, err := db.One[int64](ctx, tx, `SELECT count(*) FROM scim_groups WHERE folded = $1 AND id <> $2`, user.Fold(g.Name), g.ID)
	if err != nil {
		return err
	}
	if others > 0 {
		return fault.New(fault.Conflict, "already_exists", "a group with this name already exists")
	}
	return tx.Do(ctx, `INSERT INTO scim_groups (id, name, folded, external_id, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, folded = excluded.folded, external_id = excluded.external_id, updated_at = excluded.updated_at`,
		g.ID, g.Name, user.Fold(g.Name), g.ExternalID, g.CreatedAt, g.UpdatedAt)
}

func deleteGroup(ctx context.Context, tx *db.Tx, id string) error {
	for _, q := range []string{`DELETE FROM scim_members WHERE group_id = $1`, `DELETE FROM scim_groups WHERE id = $1`} {
		if err := tx.Do(ctx, q, id); err != nil {
			return err
		}
	}
	return nil
}

// membership is a person in a group.
type membership struct {
	GroupID  string `db:"group_id"`
	UserID   string `db:"user_id"`
	Group    string `db:"group_name"`
	Username string `db:"username"`
}

const membershipColumns = `SELECT m.group_id, m.user_id, g.name AS group_name, u.username
	FROM scim_members m JOIN scim_groups g ON g.id = m.group_id JOIN users u ON u.id = m.user_id`

// selectMembers returns the members of groups.
func selectMembers(ctx context.Context, tx *db.Tx, groups []string) ([]membership, error) {
	return db.AllIn[membership](ctx, tx, membershipColumns+` WHERE m.group_id IN ($in) ORDER BY m.user_id`, groups)
}

// selectGroupsOf returns the groups of people.
func selectGroupsOf(ctx context.Context, tx *db.Tx, people []string) ([]membership, error) {
	return db.AllIn[membership](ctx, tx, membershipColumns+` WHERE m.user_id IN ($in) ORDER BY m.group_id`, people)
}

// partCount is the number of a group's members, or of a person's groups.
type partCount struct {
	ID    string `db:"id"`
	Parts int64  `db:"parts"`
}

// countMembersOf counts the members of groups. Groups without members are left out.
func countMembersOf(ctx context.Context, tx *db.Tx, groups []string) ([]partCount, error) {
	return db.AllIn[partCount](ctx, tx, `SELECT group_id AS id, count(*) AS parts FROM scim_members WHERE group_id IN ($in) GROUP BY group_id`, groups)
}

// countGroupsOf counts the groups of people. People without groups are left out.
func countGroupsOf(ctx context.Context, tx *db.Tx, people []string) ([]partCount, error) {
	return db.AllIn[partCount](ctx, tx, `SELECT user_id AS id, count(*) AS parts FROM scim_members WHERE user_id IN ($in) GROUP BY user_id`, people)
}

func insertMembers(ctx context.Context, tx *db.Tx, groupID string, people []string) error {
	rows := make([][]any, len(people))
	for i, id := range people {
		rows[i] = []any{groupID, id}
	}
	return db.DoRows(ctx, tx, `INSERT INTO scim_members (group_id, user_id) VALUES `, rows, ` ON CONFLICT (group_id, user_id) DO NOTHING`)
}

func deleteMember(ctx context.Context, tx *db.Tx, groupID, userID string) error {
	return tx.Do(ctx, `DELETE FROM scim_members WHERE group_id = $1 AND user_id = $2`, groupID, userID)
}

const tokenColumns = `SELECT id, name, created_by, created_at FROM scim_tokens`

func insertToken(ctx context.Context, tx *db.Tx, t Token) error {
	return tx.Do(ctx, `INSERT INTO scim_tokens (id, name, created_by, created_at) VALUES ($1, $2, $3, $4)`, t.ID, t.Name, t.CreatedBy, t.CreatedAt)
}

func selectToken(ctx context.Context, tx *db.Tx, id string) (Token, error) {
	t, err := db.One[Token](ctx, tx, tokenColumns+` WHERE id = $1`, id)
	return t, unknownToken(err)
}

func selectTokens(ctx context.Context, tx *db.Tx, skip, limit int) ([]Token, error) {
	return db.All[Token](ctx, tx, tokenColumns+` ORDER BY created_at, id LIMIT $1 OFFSET $2`, limit, skip)
}

func countTokens(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM scim_tokens`)
}

func deleteToken(ctx context.Context, tx *db.Tx, id string) error {
	return tx.Do(ctx, `DELETE FROM scim_tokens WHERE id = $1`, id)
}

// DropTokens removes all tokens, within tx. It is one of tenant.Service.RevokeHooks, because the
// tokens' keys are revoked together with those of the tenant.
func DropTokens(ctx context.Context, tx *db.Tx) error {
	return tx.Do(ctx, `DELETE FROM scim_tokens`)
}
