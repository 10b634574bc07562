package enforce

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

const (
	headerSession = "Mcp-Session-Id"
	// sealedSession begins the id of a session that was opened through a bouncer.
	sealedSession = "gh1."
	// maxSessions bounds the sessions that are remembered.
	maxSessions = 16_384
	// maxSessionMasks bounds the masks that are remembered of one.
	maxSessionMasks = 1000
)

var errSession = &refusal{http.StatusNotFound, "session_unknown", "the session is not known, or was opened by somebody else"}

// sessionSeal makes the ids of MCP sessions worthless to all but who opened them.
// What the server calls a session is encrypted for its user under a key of the
// tenant, which all of its bouncers have: none has to remember anything.
type sessionSeal struct {
	aead cipher.AEAD
	key  []byte // of nonces
}

// newSessionSeal is nil without a key.
func newSessionSeal(key rego.HashKey) *sessionSeal {
	own := key.Derive("mcp-session/v1")
	if len(own) == 0 {
		return nil
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil
	}
	return &sessionSeal{aead, key.Derive("mcp-session/nonce/v1")}
}

// seal is the id that the user gets; the same each time.
func (s *sessionSeal) seal(id, user string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(user + "\x00" + id))
	nonce := mac.Sum(nil)[:s.aead.NonceSize()]
	return sealedSession + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, []byte(id), []byte(user)))
}

// open is the server's own id; false: it is no id of ours, or another user's.
func (s *sessionSeal) open(sealed, user string) (string, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(sealed, sealedSession))
	if err != nil || len(raw) < s.aead.NonceSize() {
		return "", false
	}
	id, err := s.aead.Open(nil, raw[:s.aead.NonceSize()], raw[s.aead.NonceSize():], []byte(user))
	return string(id), err == nil
}

// sessions remember, of those that this bouncer saw, whose they are, where that is
// not in the id itself, and what masks their answers had.
type sessions struct {
	mu   sync.Mutex
	seen map[string]*session
}

type session struct {
	owner string
	bound bool
	masks []rego.MaskRule
}

// of is a session, which is made if it is not known. Whoever calls holds mu.
func (s *sessions) of(key string) *session {
	if got := s.seen[key]; got != nil {
		return got
	}
	if s.seen == nil {
		s.seen = map[string]*session{}
	}
	if len(s.seen) >= maxSessions {
		for other := range s.seen { // any
			delete(s.seen, other)
			break
		}
	}
	got := &session{}
	s.seen[key] = got
	return got
}

// claim binds a session to its first user; false: it is another one's.
func (s *sessions) claim(key, user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.of(key)
	if !got.bound {
		got.owner, got.bound = user, true
	}
	return got.owner == user
}

// note remembers masks that answers in a session had, and remembered gives them.
func (s *sessions) note(key string, masks []rego.MaskRule) {
	if key == "" || len(masks) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.of(key)
	got.masks = union(got.masks, masks)
}

func (s *sessions) remembered(key string) []rego.MaskRule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.seen[key]; got != nil {
		return got.masks
	}
	return nil
}

// union appends what is new of b to a copy of a.
func union(a, b []rego.MaskRule) []rego.MaskRule {
	have := make(map[rego.MaskRule]bool, len(a)+len(b))
	out := make([]rego.MaskRule, 0, len(a)+len(b))
	for _, list := range [...][]rego.MaskRule{a, b} {
		for _, m := range list {
			if !have[m] && len(out) < maxSessionMasks {
				have[m] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// sessionKey names the session of a request; empty: it is in none.
func sessionKey(in *inbound, id string) string {
	if id == "" {
		return ""
	}
	return in.host + "\x00" + id
}

// enterSession gives the application its own id for the session that a request is
// in, and refuses one that another user opened. An id that no bouncer gave out belongs
// to whom this one sees it from first. In shadow mode nobody is refused.
func (b *Bouncer) enterSession(r *http.Request, in *inbound, st *state, who *identity.Caller) *refusal {
	lines := r.Header[headerSession]
	if len(lines) == 0 {
		return nil
	}
	enforces := st.mode == enforcing
	if len(lines) > 1 {
		if enforces {
			return badRequest("two sessions in one request")
		}
		return nil
	}
	id := lines[0]
	if strings.HasPrefix(id, sealedSession) && st.sessionSeal != nil {
		raw, ok := st.sessionSeal.open(id, who.ID)
		switch {
		case ok:
			r.Header[headerSession] = []string{raw}
			in.session = sessionKey(in, raw)
			return nil
		case enforces:
			return errSession
		}
		return nil
	}
	in.session = sessionKey(in, id)
	if enforces && !b.sessions.claim(in.session, who.ID) {
		return errSession
	}
	return nil
}

// openSession binds the session that an answer opens to the user who asked.
func (b *Bouncer) openSession(in *inbound, st *state, who *identity.Caller, h http.Header) {
	lines := h[headerSession]
	if len(lines) == 0 || st.mode != enforcing {
		return
	}
	bound := make([]string, len(lines))
	for i, id := range lines {
		bound[i] = id
		if st.sessionSeal != nil && id != "" {
			bound[i] = st.sessionSeal.seal(id, who.ID)
		} else {
			b.sessions.claim(sessionKey(in, id), who.ID)
		}
	}
	h[headerSession] = bound
}

// resumedMasks are the masks that the answers may have which come over a stream
// that is taken up again: those that answers of the session had here, and those that
// calls of the server's tools have.
func (b *Bouncer) resumedMasks(ctx context.Context, st *state, in *inbound, who *identity.Caller) []rego.MaskRule {
	masks := b.sessions.remembered(in.session)
	end := b.cfg.Now().Add(toolsDeadline)
	for _, name := range b.tools.names(serverKey(st, in)) {
		if !b.cfg.Now().Before(end) {
			break
		}
		if d := b.decideTool(ctx, st, in, who, name); d.Permit && d.Err == nil {
			answer, _ := mask.Split(d.Mask)
			masks = union(masks, answer)
		}
	}
	return masks
}

// decideTool decides on a call of a tool, without arguments.
func (b *Bouncer) decideTool(ctx context.Context, st *state, in *inbound, who *identity.Caller, name string) rego.Decision {
	seen := *in.seen
	seen.rpc = &mcp.Message{Method: "tools/call", Tool: name, Session: in.seen.head.mcp.Session, Version: in.seen.head.mcp.Version}
	asked := *in
	asked.seen = &seen
	q := question(&asked, st.settings, who)
	return st.set.Decide(ctx, &q, rego.Options{Now: in.at, Deadline: b.cfg.DecisionDeadline, Clock: b.cfg.Now, Caught: b.caught(ctx, in.id)})
}

// resumes reports whether a request may take up a stream of an MCP server, in which
// answers to other requests come. What it says that it accepts binds no server.
func (b *Bouncer) resumes(r *http.Request, st *state, in *inbound) bool {
	return in.method == http.MethodGet && (in.seen.head.mcp.Session != "" || r.Header.Get("Last-Event-Id") != "" || servingOf(st, in).mcp ||
		strings.Contains(strings.Join(r.Header["Accept"], ","), "event-stream") || len(b.tools.names(serverKey(st, in))) > 0)
}
