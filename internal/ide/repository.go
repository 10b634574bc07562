package ide

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxRepositories limits the registrations of one tenant.
const maxRepositories = 1000

// Repository is a registered repository, whose webhook is accepted.
type Repository struct {
	ID         int64     `json:"id" db:"id" doc:"Identifier." example:"3"`
	Name       string    `json:"name" db:"name" doc:"Name, unique." example:"controls"`
	URL        string    `json:"url" db:"url" doc:"Address to fetch the repository from, over https." example:"https://git.example.com/acme/controls.git"`
	Branch     string    `json:"branch" db:"branch" doc:"Only this branch deploys, and only pull requests into it are validated; empty: every branch."`
	Path       string    `json:"path" db:"path" doc:"Only use files below this folder; empty: all."`
	ResourceID *int64    `json:"resource_id" db:"resource_id" nullable:"true" doc:"Resource that deployed controls are linked to."`
	BouncerID  *int64    `json:"bouncer_id" db:"bouncer_id" nullable:"true" doc:"Bouncer that deployed controls are linked to."`
	Enabled    bool      `json:"enabled" db:"enabled" doc:"Whether deliveries are accepted."`
	WebhookURL string    `json:"webhook_url" db:"-" doc:"Where the repository sends its events."`
	TokenSet   bool      `json:"access_token_set" db:"-" doc:"Whether an access token is stored."`
	CreatedBy  string    `json:"created_by" db:"created_by" doc:"Who registered it."`
	CreatedAt  time.Time `json:"created_at" db:"created_at" doc:"When it was registered."`
	UpdatedAt  time.Time `json:"updated_at" db:"updated_at" doc:"When it was last changed."`

	// ChangeNo is the ETag. Secret and Token are encrypted.
	ChangeNo int64  `json:"-" db:"change_no"`
	Secret   []byte `json:"-" db:"secret"`
	Token    []byte `json:"-" db:"access_token"`
}

// RepositoryDraft is a repository to register.
type RepositoryDraft struct {
	Name        string `json:"name" minLength:"1" maxLength:"200" doc:"Name, unique." example:"controls"`
	URL         string `json:"url" minLength:"1" maxLength:"2000" doc:"Address to fetch the repository from; https." example:"https://git.example.com/acme/controls.git"`
	Secret      string `json:"secret" minLength:"16" maxLength:"500" doc:"Secret that signs the deliveries; write-only."`
	AccessToken string `json:"access_token,omitempty" maxLength:"2000" doc:"Token for fetching a private repository, or name:token when the host needs a user name; write-only."`
	Branch      string `json:"branch,omitempty" maxLength:"255" doc:"Only this branch deploys; absent: every branch."`
	Path        string `json:"path,omitempty" maxLength:"512" doc:"Only use files below this folder; absent: all."`
	ResourceID  *int64 `json:"resource_id,omitempty" nullable:"true" minimum:"1" doc:"Resource that deployed controls are linked to."`
	BouncerID   *int64 `json:"bouncer_id,omitempty" nullable:"true" minimum:"1" doc:"Bouncer that deployed controls are linked to."`
	Enabled     *bool  `json:"enabled,omitempty" doc:"Whether deliveries are accepted; true by default."`
}

// RepositoryChange is an update of a registration. Members that are not set do not change.
type RepositoryChange struct {
	Name        *string             `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name, unique."`
	URL         *string             `json:"url,omitempty" minLength:"1" maxLength:"2000" doc:"Address. If an access token is stored, a change to another host needs access_token again."`
	Secret      *string             `json:"secret,omitempty" minLength:"16" maxLength:"500" doc:"Secret that signs the deliveries; write-only."`
	AccessToken patch.Field[string] `json:"access_token,omitzero" maxLength:"2000" doc:"Token for fetching a private repository, or name:token when the host needs a user name; write-only, null deletes it."`
	Branch      patch.Field[string] `json:"branch,omitzero" maxLength:"255" doc:"Only this branch deploys; null: every branch."`
	Path        patch.Field[string] `json:"path,omitzero" maxLength:"512" doc:"Only use files below this folder; null: all."`
	ResourceID  patch.Field[int64]  `json:"resource_id,omitzero" minimum:"1" doc:"Resource that deployed controls are linked to; null: none."`
	BouncerID   patch.Field[int64]  `json:"bouncer_id,omitzero" minimum:"1" doc:"Bouncer that deployed controls are linked to; null: none."`
	Enabled     *bool               `json:"enabled,omitempty" doc:"Whether deliveries are accepted."`
}

// RepositoryPage is one page of registrations, ordered by id.
type RepositoryPage struct {
	Repositories []Repository `json:"repositories" doc:"The page, sorted by id."`
	Total        int64        `json:"total" doc:"How many there are."`
}

// Repositories returns one page of the registrations.
func (s *Service) Repositories(ctx context.Context, sc scope.Scope, skip, limit int64) (RepositoryPage, error) {
	var page RepositoryPage
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = countRepositories(ctx, tx); err != nil {
			return err
		}
		page.Repositories, err = repositories(ctx, tx, skip, limit)
		return err
	})
	for i := range page.Repositories {
		s.show(sc, &page.Repositories[i])
	}
	return page, err
}

// Repository returns one registration.
func (s *Service) Repository(ctx context.Context, sc scope.Scope, id int64) (Repository, error) {
	r, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Repository, error) { return load(ctx, tx, id) })
	s.show(sc, &r)
	return r, err
}

func load(ctx context.Context, tx *db.Tx, id int64) (Repository, error) {
	r, err := repository(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return r, fault.NotFoundf("there is no such repository")
	}
	return r, err
}

// show sets the members that are not stored.
func (s *Service) show(sc scope.Scope, r *Repository) {
	r.TokenSet = len(r.Token) > 0
	r.WebhookURL = fmt.Sprintf("%s/api/v1/ide-integration/webhook?repository=%d&tenant_id=%s", s.PublicURL, r.ID, url.QueryEscape(string(sc.Tenant)))
}

// seal returns the name to which an encrypted value is bound.
func seal(sc scope.Scope, name, member string) string {
	return "ide_repositories:" + string(sc.Tenant) + ":" + member + ":" + name
}

// Register registers a repository. Its deliveries may deploy, so the caller must be allowed to
// deploy, too (policies:write).
func (s *Service) Register(ctx context.Context, sc scope.Scope, d RepositoryDraft) (Repository, error) {
	if err := checkMayDeploy(sc); err != nil {
		return Repository{}, err
	}
	next := Repository{
		Name: strings.TrimSpace(d.Name), URL: d.URL, Branch: d.Branch, Path: strings.Trim(d.Path, "/"), ResourceID: d.ResourceID, BouncerID: d.BouncerID,
		Enabled: d.Enabled == nil || *d.Enabled, ChangeNo: 1, CreatedBy: sc.Actor.Name,
	}
	if err := s.checkRepository(ctx, sc, next); err != nil {
		return Repository{}, err
	}
	var made Repository
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "ide:repositories"); err != nil {
			return err
		}
		n, err := countRepositories(ctx, tx)
		if err != nil {
			return err
		}
		if n >= maxRepositories {
			return fault.Newf(fault.Forbidden, "limit_exceeded", "a tenant may have at most %d repositories", maxRepositories)
		}
		r := next
		r.CreatedAt = s.Now()
		r.UpdatedAt = r.CreatedAt
		if made, err = insertRepository(ctx, tx, r); err != nil {
			return err
		}
		if err := s.sealed(sc, &made, &d.Secret, patch.Set(d.AccessToken)); err != nil {
			return err
		}
		if made, err = updateRepository(ctx, tx, made); err != nil {
			return err
		}
		return s.note(ctx, tx, sc, made, "REPOSITORY_REGISTERED")
	})
	s.show(sc, &made)
	return made, err
}

// sealed encrypts the secret and the token, and binds them to the row.
func (s *Service) sealed(sc scope.Scope, r *Repository, secret *string, token patch.Field[string]) (err error) {
	row := strconv.FormatInt(r.ID, 10)
	if secret != nil {
		if r.Secret, err = s.Box.Seal([]byte(*secret), seal(sc, row, "secret")); err != nil {
			return fault.Wrap(err, "seal")
		}
	}
	switch {
	case !token.Sent:
	case token.Value == "" || token.Null:
		r.Token = nil
	default:
		if r.Token, err = s.Box.Seal([]byte(token.Value), seal(sc, row, "access_token")); err != nil {
			return fault.Wrap(err, "seal")
		}
	}
	return nil
}

// Change changes a registration. Unless ifChange is 0, it must be the current change number.
func (s *Service) Change(ctx context.Context, sc scope.Scope, id int64, c RepositoryChange, ifChange int64) (Repository, error) {
	old, err := s.Repository(ctx, sc, id)
	if err == nil {
		err = checkMayDeploy(sc)
	}
	if err != nil {
		return Repository{}, err
	}
	next := old.apply(c)
	if err := s.checkRepository(ctx, sc, next); err != nil {
		return Repository{}, err
	}
	if !outbound.SameOrigin(old.URL, next.URL) && len(old.Token) > 0 && !c.AccessToken.Sent {
		return Repository{}, fault.Invalidf("/access_token", "another host needs the access token again")
	}
	var made Repository
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		now, err := load(ctx, tx, id)
		if err != nil {
			return err
		}
		for _, expected := range []int64{ifChange, old.ChangeNo} {
			if err := fault.CheckVersion("repository", now.ChangeNo, expected); err != nil {
				return err
			}
		}
		r := now.apply(c)
		if err := s.sealed(sc, &r, c.Secret, c.AccessToken); err != nil {
			return err
		}
		r.ChangeNo, r.UpdatedAt = now.ChangeNo+1, s.Now()
		if made, err = updateRepository(ctx, tx, r); err != nil {
			return err
		}
		return s.note(ctx, tx, sc, made, "REPOSITORY_CHANGED")
	})
	s.show(sc, &made)
	return made, err
}

func (r Repository) apply(c RepositoryChange) Repository {
	if c.Name != nil {
		r.Name = strings.TrimSpace(*c.Name)
	}
	patch.Assign(&r.URL, c.URL)
	patch.Assign(&r.Enabled, c.Enabled)
	c.Branch.Apply(&r.Branch)
	c.Path.Apply(&r.Path)
	r.Path = strings.Trim(r.Path, "/")
	c.ResourceID.ApplyPointer(&r.ResourceID)
	c.BouncerID.ApplyPointer(&r.BouncerID)
	return r
}

// Forget deletes a registration. The controls that it deployed stay.
func (s *Service) Forget(ctx context.Context, sc scope.Scope, id, ifChange int64) error {
	return s.write(ctx, sc, func(tx *db.Tx) error {
		r, err := load(ctx, tx, id)
		if r, err = fault.Current(r, err, "repository", r.ChangeNo, ifChange); err != nil {
			return err
		}
		if err := deleteRepository(ctx, tx, id); err != nil {
			return err
		}
		return s.note(ctx, tx, sc, r, "REPOSITORY_REMOVED")
	})
}

// checkMayDeploy returns an error if the caller may not deploy to sandbox.
func checkMayDeploy(sc scope.Scope) error {
	if err := sc.Require("policies:write"); err != nil {
		return err
	}
	_, err := sc.CreateIn(scope.Sandbox)
	return err
}

// checkRepository makes all checks that do not need the stored row.
func (s *Service) checkRepository(ctx context.Context, sc scope.Scope, r Repository) error {
	if r.Name == "" {
		return fault.Invalidf("/name", "the name is required")
	}
	if err := s.Target.Check(ctx, "/url", r.URL); err != nil {
		return err
	}
	if strings.ContainsAny(r.URL, "?#") {
		return fault.Invalidf("/url", "the address of a repository must not have a query")
	}
	return s.LinksExist(ctx, sc, r.ResourceID, r.BouncerID)
}

func (s *Service) note(ctx context.Context, tx *db.Tx, sc scope.Scope, r Repository, kind string) error {
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: kind, Object: "repository", ObjectID: strconv.FormatInt(r.ID, 10), ObjectName: r.Name, Env: scope.Sandbox,
		Changes: map[string]any{"url": r.URL, "branch": r.Branch, "enabled": r.Enabled},
	})
}
