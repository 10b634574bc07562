package auth

import (
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// An API key is a token (secret.NewToken) whose head is gh_ and its kind: sandbox, production,
// tenant, or the kind of caller that it is dedicated to, such as vendor. Bouncers' tokens have the
// same format, with the kind bouncer (package bouncer).
const (
	keyPrefix  = "gh_"
	hintDigits = 4
)

// kindOf returns the kind in the head of a key: the kind of caller that it is dedicated to, or
// else its environment, or tenant if it is not limited to one.
func kindOf(k Key) string {
	switch {
	case k.Dedicated != "":
		return string(k.Dedicated)
	case k.Environment == scope.AnyEnv:
		return "tenant"
	}
	return string(k.Environment)
}

func knownKind(kind string) bool {
	return kind == "tenant" || kind == credentialBouncer || scope.Env(kind).Valid() || scope.ActorKind(kind).Dedicated()
}

// newKey generates an API key of a kind from random.
func newKey(random io.Reader, kind string) (string, error) {
	return secret.NewToken(random, keyPrefix+kind)
}

// looksLikeKey distinguishes an API key from a token by its first letters.
func looksLikeKey(s string) bool { return strings.HasPrefix(s, keyPrefix) }

// wellFormed reports whether s has the format of our keys, including the checksum.
func wellFormed(s string) bool {
	head, ok := secret.ParseToken(s)
	kind, ours := strings.CutPrefix(head, keyPrefix)
	return ok && ours && knownKind(kind)
}

// hint returns the beginning of a key, which may be shown again so that its owner recognises it.
func hint(key string) string {
	cut := strings.LastIndexByte(key, '_')
	head := strings.LastIndexByte(key[:cut], '_') + 1
	return key[:head+hintDigits] + "…"
}
