package user

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

const columns = `id, email, username, password_hash, roles, department, attributes, status, created_at, updated_at, last_login_at`

// insertUsers adds people. Fault: Conflict if an id is in use.
func insertUsers(ctx context.Context, tx *db.Tx, people []User) error {
	rows := make([][]any, len(people))
	for i, u := range people {
		rows[i] = []any{u.ID, u.Email, u.Username, u.PasswordHash, u.Roles, u.Department, u.Attributes, u.Status, u.CreatedAt, u.UpdatedAt, u.LastLoginAt}
	}
	n, err := db.ExecRows(ctx, tx, `INSERT INTO users (`+columns+`) VALUES `, rows, ` ON CONFLICT (id) DO NOTHING`)
	if err == nil && n < int64(len(rows)) {
		err = fault.New(fault.Conflict, "already_exists", "a user with this id already exists")
	}
	return err
}

func updateUser(ctx context.Context, tx *db.Tx, u User) error {
	return tx.Do(ctx, `UPDATE users SET email = $2, username = $3, password_hash = $4, roles = $5, department = $6,
		attributes = $7, status = $8, updated_at = $9 WHERE id = $1`,
		u.ID, u.Email, u.Username, u.PasswordHash, u.Roles, u.Department, u.Attributes, u.Status, u.UpdatedAt)
}

// RecordSignIn records the time of a sign-in. If rehash is not empty, it replaces the password's hash.
func RecordSignIn(ctx context.Context, tx *db.Tx, id string, at time.Time, rehash string) error {
	return tx.Do(ctx, `UPDATE users SET last_login_at = $2,
		password_hash = CASE WHEN $3 = '' THEN password_hash ELSE $3 END WHERE id = $1`, id, at, rehash)
}

// ByID finds a person within the caller's transaction.
func ByID(ctx context.Context, tx *db.Tx, id string) (User, error) {
	u, err := db.One[User](ctx, tx, `SELECT `+columns+` FROM users WHERE id = $1`, id)
	if errors.Is(err, db.ErrNoRows) {
		return User{}, fault.NotFoundf("there is no such user")
	}
	return u, err
}

// LockByID is ByID, and locks the person until the transaction ends.
func LockByID(ctx context.Context, tx *db.Tx, id string) (User, error) {
	if err := tx.Lock(ctx, "user:"+id); err != nil {
		return User{}, err
	}
	return ByID(ctx, tx, id)
}

// hasSession reports whether a session of a person has not been ended.
func hasSession(ctx context.Context, tx *db.Tx, userID, session string) (bool, error) {
	n, err := db.One[int64](ctx, tx, `SELECT count(*) FROM sessions WHERE id = $1 AND user_id = $2`, session, userID)
	return n > 0, err
}

func selectByName(ctx context.Context, tx *db.Tx, folded string) (User, error) {
	return db.One[User](ctx, tx, `SELECT `+columns+` FROM users
		WHERE id = (SELECT user_id FROM user_names WHERE name = $1)`, folded)
}

// selectActive lists active people who may have a role. The match is coarse, so the caller must
// check.
func selectActive(ctx context.Context, tx *db.Tx, role string) ([]User, error) {
	return db.All[User](ctx, tx, `SELECT `+columns+` FROM users WHERE status = $1 AND roles LIKE $2`, Active, "%"+role+"%")
}

func selectPage(ctx context.Context, tx *db.Tx, f Filter) (Page, error) {
	like := "%" + likeEscaper().Replace(Fold(f.Search)) + "%"
	const where = ` FROM users WHERE id IN (SELECT user_id FROM user_names WHERE name LIKE $1 ESCAPE '\')`
	var p Page
	var err error
	if p.Users, err = db.All[User](ctx, tx, `SELECT `+columns+where+` ORDER BY created_at, id LIMIT $2 OFFSET $3`, like, f.Limit, f.Skip); err != nil {
		return Page{}, err
	}
	p.Total, err = db.One[int64](ctx, tx, `SELECT count(*)`+where, like)
	return p, err
}

func likeEscaper() *strings.Replacer { return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`) }

// Count returns the number of people of the tenant, for its limits.
func Count(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM users`)
}

func deleteUser(ctx context.Context, tx *db.Tx, id string) error {
	if err := dropNames(ctx, tx, id); err != nil {
		return err
	}
	for _, q := range []string{`DELETE FROM user_identities WHERE user_id = $1`, `DELETE FROM users WHERE id = $1`} {
		if err := tx.Do(ctx, q, id); err != nil {
			return err
		}
	}
	return nil
}

// putNames claims both names of each person. Fault: Conflict if one is in use.
func putNames(ctx context.Context, tx *db.Tx, people ...User) error {
	var rows [][]any
	for _, u := range people {
		name, mail := Fold(u.Username), Fold(u.Email)
		if rows = append(rows, []any{name, u.ID}); mail != name {
			rows = append(rows, []any{mail, u.ID})
		}
	}
	n, err := db.ExecRows(ctx, tx, `INSERT INTO user_names (name, user_id) VALUES `, rows, ` ON CONFLICT (name) DO NOTHING`)
	if err == nil && n < int64(len(rows)) {
		err = fault.New(fault.Conflict, "already_exists", "a user with this name or e-mail address already exists")
	}
	return err
}

func dropNames(ctx context.Context, tx *db.Tx, id string) error {
	return tx.Do(ctx, `DELETE FROM user_names WHERE user_id = $1`, id)
}

// DropPasswords removes the passwords of all people of a tenant.
func DropPasswords(ctx context.Context, tx *db.Tx) error {
	return tx.Do(ctx, `UPDATE users SET password_hash = ''`)
}

func selectUsernames(ctx context.Context, tx *db.Tx) ([]string, error) {
	return db.All[string](ctx, tx, `SELECT username FROM users WHERE status = $1`, Active)
}
