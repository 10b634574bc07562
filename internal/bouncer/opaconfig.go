package bouncer

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// tokenVariable is replaced by the environment variable of that name when OPA reads its
// configuration. Tokens are shown only once, so a configuration that is requested later cannot
// contain one.
const tokenVariable = "${GATEHOUSE_BOUNCER_TOKEN}"

// VerifyKey is a public key for signed bundles.
type VerifyKey struct {
	// ID is the key's id in signatures; Algorithm such as RS256; PEM the key.
	ID, Algorithm, PEM string
}

// OPAConfig returns the boot configuration for a stock OPA as this bouncer, in YAML. It needs only
// GATEHOUSE_BOUNCER_TOKEN in OPA's environment.
func (s *Service) OPAConfig(ctx context.Context, sc scope.Scope, id int64) (string, error) {
	b, err := s.Get(ctx, sc, id)
	if err != nil {
		return "", err
	}
	key, err := s.verifyKey(ctx, sc, b)
	return s.opaConfig(b, tokenVariable, key), err
}

func (s *Service) issued(b Bouncer, token string, key VerifyKey) Issued {
	return Issued{Bouncer: b, Token: token, OPAConfig: s.opaConfig(b, token, key), VerifyKey: key.PEM}
}

// verifyKey returns the key that a bouncer checks its bundles with; the zero key if they are not
// signed. It is read before a token is generated, because an error after that would lose the token.
func (s *Service) verifyKey(ctx context.Context, sc scope.Scope, b Bouncer) (VerifyKey, error) {
	if !b.Signing() {
		return VerifyKey{}, nil
	}
	return s.VerifyKey(ctx, sc.Tenant)
}

// opaConfig writes what OPA needs to find the rest: discovery provides the bundle and decision
// logs. The status is configured here, so that an OPA that refuses the discovery bundle (because
// its key differs) can report it. Texts are quoted as JSON, which YAML reads.
func (s *Service) opaConfig(b Bouncer, token string, key VerifyKey) string {
	var out strings.Builder
	if token == tokenVariable {
		fmt.Fprintf(&out, "# Set GATEHOUSE_BOUNCER_TOKEN in OPA's environment: the token was shown when the bouncer\n# was created; POST /bouncers/%d/rotate-token gives a new one.\n", b.ID)
	}
	fmt.Fprintf(&out, "# opa run --server --config-file gatehouse.yaml\nservices:\n  gatehouse:\n    url: %s\n    credentials:\n      bearer:\n        token: %s\n",
		strconv.Quote(strings.TrimSuffix(s.Root, "/")+"/bridge"), strconv.Quote(token))
	fmt.Fprintf(&out, "labels:\n  bouncer: \"%d\"\n  environment: %s\nstatus:\n  service: gatehouse\ndiscovery:\n  service: gatehouse\n  resource: \"/bundles/%d/discovery\"\n", b.ID, b.Environment, b.ID)
	if !b.Signing() {
		return out.String()
	}
	// Discovery cannot provide keys, because its own bundle is signed as well.
	out.WriteString("  # The same key, or the path of a file with it, is GATEHOUSE_BOUNCER_VERIFY_KEY of a gatehouse bouncer.\n")
	fmt.Fprintf(&out, "  signing:\n    keyid: %s\nkeys:\n  %s:\n    algorithm: %s\n    key: |\n", strconv.Quote(key.ID), strconv.Quote(key.ID), key.Algorithm)
	for line := range strings.SplitSeq(strings.TrimSpace(key.PEM), "\n") {
		fmt.Fprintf(&out, "      %s\n", line)
	}
	return out.String()
}
