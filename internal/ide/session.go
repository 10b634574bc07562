package ide

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Limits on what editors store here.
const (
	sessionLife = 8 * time.Hour // after the last sync
	maxSessions = 20            // of one person or key; a new one replaces the oldest
)

// Session is a document that an editor stores here.
type Session struct {
	ID        string    `db:"session_id"`
	FilePath  string    `db:"file_path"`
	Content   string    `db:"content"`
	Version   int64     `db:"version"`
	UpdatedAt time.Time `db:"updated_at"`
	ExpiresAt time.Time `db:"expires_at"`
}

// Synced is a session's document and its analysis.
type Synced struct {
	Session
	Verdict
	Attributes []Attribute
}

// Sync validates a text and stores it as the session's document. An empty id starts a session.
func (s *Service) Sync(ctx context.Context, sc scope.Scope, id, path, source string) (Synced, error) {
	if len(source) > lang.MaxSourceBytes {
		return Synced{}, fault.Invalidf("/policy_content", "a control may have at most %d bytes", lang.MaxSourceBytes)
	}
	v, err := s.Validate(ctx, sc, source)
	if err != nil {
		return Synced{}, err
	}
	if id == "" {
		id = s.NewID()
	}
	var kept Session
	err = s.write(ctx, sc, func(tx *db.Tx) (err error) {
		if err := user.RequireActor(ctx, tx, sc); err != nil {
			return err
		}
		if err = tx.Lock(ctx, "ide:"+actorName(sc)); err != nil {
			return err
		}
		now := s.Now()
		if kept, err = putSession(ctx, tx, actorName(sc), Session{ID: id, FilePath: path, Content: source, UpdatedAt: now, ExpiresAt: now.Add(sessionLife)}); err != nil {
			return err
		}
		return dropSessions(ctx, tx, actorName(sc), now)
	})
	return Synced{kept, v, attributes(source)}, err
}

// Context returns the session's document and its analysis. Fault: NotFound if the session has
// expired or belongs to another caller.
func (s *Service) Context(ctx context.Context, sc scope.Scope, id string) (Synced, error) {
	kept, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Session, error) { return session(ctx, tx, actorName(sc), id, s.Now()) })
	if errors.Is(err, db.ErrNoRows) {
		return Synced{}, fault.NotFoundf("there is no such session; it may have expired")
	}
	if err != nil {
		return Synced{}, err
	}
	v, err := s.Validate(ctx, sc, kept.Content)
	return Synced{kept, v, attributes(kept.Content)}, err
}

// Package returns the package of the document, from the first line that names one.
func (s Synced) Package() string {
	for line := range strings.Lines(s.Content) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "package "); ok {
			name, _, _ := strings.Cut(rest, "#")
			return strings.TrimSpace(name)
		}
	}
	return ""
}
