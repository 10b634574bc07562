package auth

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// maxAgent is how much of a User-Agent header is stored, in bytes.
const maxAgent = 256

// SessionKind distinguishes the sessions of browsers from those of tokens.
type SessionKind string

// The two kinds of session.
const (
	BrowserSession SessionKind = "browser"
	TokenSession   SessionKind = "token"
)

// SessionInfo describes a sign-in to its person. It contains no secret.
type SessionInfo struct {
	ID        string      `json:"id" doc:"Identifies the session; it is not the cookie or the token."`
	Kind      SessionKind `json:"kind" enum:"browser,token" doc:"browser: signed in with a cookie; token: signed in with an access token."`
	Device    string      `json:"device" doc:"Program and operating system, taken from the User-Agent header; empty when unknown."`
	UserAgent string      `json:"user_agent" doc:"User-Agent header of the sign-in, at most 256 bytes."`
	IPAddress string      `json:"ip_address" doc:"Address of the client that signed in."`
	CreatedAt time.Time   `json:"created_at" doc:"When the session started."`
	UsedAt    time.Time   `json:"last_used_at" doc:"Time of the last request, accurate to about 30 seconds."`
	ExpiresAt time.Time   `json:"expires_at" doc:"When the session ends, even if it is used."`
	IdleAt    *time.Time  `json:"idle_expires_at,omitempty" doc:"When the session ends if it is not used; absent for tokens."`
	Current   bool        `json:"current" doc:"Whether this request uses this session."`
}

// info describes a session to its person; current is the session of the request.
func (b *Sessions) info(ss session, current string) SessionInfo {
	i := SessionInfo{
		ID: ss.ID, Kind: TokenSession, Device: deviceOf(ss.Agent), UserAgent: ss.Agent, IPAddress: ss.IP,
		CreatedAt: ss.CreatedAt, UsedAt: ss.UsedAt, ExpiresAt: ss.ExpiresAt, Current: ss.ID == current,
	}
	if ss.Digest != "" {
		i.Kind = BrowserSession
		idle := ss.UsedAt.Add(b.s.SessionIdle)
		if idle.After(ss.ExpiresAt) {
			idle = ss.ExpiresAt
		}
		i.IdleAt = &idle
	}
	return i
}

// requirePerson refuses callers that are not people: they have no sessions of their own.
func requirePerson(sc scope.Scope) error {
	switch sc.Actor.Kind {
	case scope.Person:
		return nil
	case scope.Bouncer:
		return fault.New(fault.Forbidden, "permission_denied", "a bouncer's token is valid for the policy bridge only")
	default:
		return fault.New(fault.BadRequest, "not_a_session", "only people have sessions; revoke an API key instead")
	}
}

// List returns the caller's own active sign-ins, last used first. Sessions made from a
// sign-in end with it and are not listed.
func (b *Sessions) List(ctx context.Context, sc scope.Scope) ([]SessionInfo, error) {
	if err := requirePerson(sc); err != nil {
		return nil, err
	}
	home, err := homeStore(ctx, b.s.Stores, sc)
	if err != nil {
		return nil, err
	}
	out := []SessionInfo{}
	err = home.Read(ctx, func(tx *db.Tx) error {
		current, err := rootOf(ctx, tx, sc.Session)
		if err != nil {
			return err
		}
		now := b.s.Now()
		list, err := selectSignIns(ctx, tx, sc.Actor.ID, now, now.Add(-b.s.SessionIdle))
		for _, ss := range list {
			out = append(out, b.info(ss, current))
		}
		return err
	})
	return out, err
}

// rootOf returns the sign-in that a session was made from; empty if it has ended.
func rootOf(ctx context.Context, tx *db.Tx, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	ss, err := selectSession(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	return ss.Root, err
}

// End ends one of the caller's own sessions and the sessions made from it. Another person's
// session gets the same answer as an unknown one: 404 session_not_found.
func (b *Sessions) End(ctx context.Context, sc scope.Scope, id string) error {
	if err := requirePerson(sc); err != nil {
		return err
	}
	home, err := homeStore(ctx, b.s.Stores, sc)
	if err != nil {
		return err
	}
	return home.Write(ctx, func(tx *db.Tx) error {
		ss, err := selectSession(ctx, tx, id)
		if errors.Is(err, db.ErrNoRows) || err == nil && (ss.UserID != sc.Actor.ID || ss.Root != ss.ID) {
			return fault.New(fault.NotFound, "session_not_found", "you have no such session")
		}
		if err != nil {
			return err
		}
		if err := deleteRoot(ctx, tx, ss.Root); err != nil {
			return err
		}
		return b.recordEnd(ctx, tx, home.TenantID(), sc, map[string]any{"session_id": ss.ID, "device": deviceOf(ss.Agent), "ip_address": ss.IP})
	})
}

// EndOthers ends all of the caller's sessions except the one that makes the request. It returns how
// many sign-ins ended.
func (b *Sessions) EndOthers(ctx context.Context, sc scope.Scope) (int, error) {
	if err := requirePerson(sc); err != nil {
		return 0, err
	}
	home, err := homeStore(ctx, b.s.Stores, sc)
	if err != nil {
		return 0, err
	}
	ended := 0
	err = home.Write(ctx, func(tx *db.Tx) error {
		current, err := rootOf(ctx, tx, sc.Session)
		if err != nil {
			return err
		}
		now := b.s.Now()
		list, err := selectSignIns(ctx, tx, sc.Actor.ID, now, now.Add(-b.s.SessionIdle))
		if err != nil {
			return err
		}
		ended = 0
		for _, ss := range list {
			if ss.ID != current {
				ended++
			}
		}
		if err := deleteOthersOf(ctx, tx, sc.Actor.ID, current); err != nil {
			return err
		}
		return b.recordEnd(ctx, tx, home.TenantID(), sc, map[string]any{"others": true, "sessions": ended})
	})
	return ended, err
}

// recordEnd tells all replicas that sessions have ended, and writes it to the audit log.
func (b *Sessions) recordEnd(ctx context.Context, tx *db.Tx, t scope.TenantID, sc scope.Scope, about map[string]any) error {
	if _, err := tx.Bump(ctx, user.Revision); err != nil {
		return err
	}
	sc.Tenant = t
	return audit.Append(ctx, tx, sc, b.s.Now(), audit.Entry{
		Type: "SESSION_ENDED", Object: "user", ObjectID: sc.Actor.ID, ObjectName: sc.Actor.Name, EventContext: about,
	})
}

// cleanAgent makes a User-Agent header safe to store and show: printable ASCII of limited
// length.
func cleanAgent(agent string) string {
	var b strings.Builder
	for _, c := range []byte(agent) {
		if b.Len() == maxAgent {
			break
		}
		if c >= ' ' && c < 0x7f {
			b.WriteByte(c)
		}
	}
	return strings.TrimSpace(b.String())
}

// The words in User-Agent headers that name a program or a system. Specific ones come first,
// because some programs also send the names of others.
var (
	programs = [...][2]string{
		{"Edg/", "Edge"},
		{"EdgA/", "Edge"},
		{"OPR/", "Opera"},
		{"Vivaldi/", "Vivaldi"},
		{"SamsungBrowser/", "Samsung Internet"},
		{"Firefox/", "Firefox"},
		{"FxiOS/", "Firefox"},
		{"CriOS/", "Chrome"},
		{"Chrome/", "Chrome"},
		{"Safari/", "Safari"},
	}
	systems = [...][2]string{
		{"Windows", "Windows"},
		{"iPhone", "iPhone"},
		{"iPad", "iPad"},
		{"Android", "Android"},
		{"CrOS", "ChromeOS"},
		{"Mac OS X", "macOS"},
		{"Linux", "Linux"},
	}
)

// deviceOf describes the program and the system of a User-Agent header in a few words.
func deviceOf(agent string) string {
	if !strings.HasPrefix(agent, "Mozilla/") {
		product, _, _ := strings.Cut(agent, " ")
		return product
	}
	program, system := labelIn(agent, programs[:]), labelIn(agent, systems[:])
	switch {
	case program == "":
		return system
	case system == "":
		return program
	}
	return program + " on " + system
}

func labelIn(agent string, words [][2]string) string {
	for _, w := range words {
		if strings.Contains(agent, w[0]) {
			return w[1]
		}
	}
	return ""
}
