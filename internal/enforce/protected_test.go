package enforce

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// wallet authorizes as an MCP client does: after a challenge, it reads the metadata that the
// challenge names, and gets a token.
type wallet struct {
	t        *testing.T
	endpoint string
	token    func() string
	metadata *oauthex.ProtectedResourceMetadata
	source   oauth2.TokenSource
}

func (w *wallet) TokenSource(context.Context) (oauth2.TokenSource, error) { return w.source, nil }

func (w *wallet) Authorize(ctx context.Context, _ *http.Request, res *http.Response) error {
	defer res.Body.Close()
	challenges, err := oauthex.ParseWWWAuthenticate(res.Header.Values("WWW-Authenticate"))
	if err != nil || len(challenges) != 1 {
		w.t.Errorf("the challenges are %q %v, want one", res.Header.Values("WWW-Authenticate"), err)
		return err
	}
	if w.metadata, err = oauthex.GetProtectedResourceMetadata(ctx, challenges[0].Params["resource_metadata"], w.endpoint, http.DefaultClient); err != nil {
		return err
	}
	w.source = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: w.token()})
	return nil
}

// TestProtectedResource checks that a real MCP client without a token learns where to get one
// (RFC 9728), gets it, and is allowed.
func TestProtectedResource(t *testing.T) {
	t.Parallel()
	var seen []string
	tools := toolServer("", &sdk.StreamableHTTPOptions{})
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		tools.ServeHTTP(w, r)
	})
	keys := newIssuer(t)
	set := guarded(1, "enforce")
	set.config = map[string]any{"identity": keys.config()}
	p, b := startPublished(t, app.URL, set, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w := &wallet{t: t, endpoint: b.url + "/mcp", token: func() string { return keys.token(t, "ed", map[string]any{"groups": []string{"staff"}}) }}
	c := sdk.NewClient(&sdk.Implementation{Name: "client", Version: "1"}, nil)
	s, err := c.Connect(ctx, &sdk.StreamableClientTransport{Endpoint: w.endpoint, OAuthHandler: w}, nil)
	errtest.Must(t, err)
	defer s.Close()
	if list, err := s.ListTools(ctx, nil); err != nil || len(list.Tools) != 2 {
		t.Errorf("the tools are %v %v, want 2", list, err)
	}
	if w.metadata == nil || w.metadata.Resource != w.endpoint || len(w.metadata.AuthorizationServers) != 1 || w.metadata.AuthorizationServers[0] != testIssuer {
		t.Errorf("the metadata is %+v, want the endpoint and its issuer", w.metadata)
	}
	if got := strings.Join(seen, ""); got != "" {
		t.Errorf("the server got the credentials %q, want none", got)
	}
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for name, tc := range map[string]struct {
		token, code, challenge string
	}{
		"no token":    {"", judge.CodeNoToken, `Bearer resource_metadata="` + b.url + judge.MetadataPath + `/mcp"`},
		"a bad token": {"x.y.z", "invalid_token", `Bearer error="invalid_token", resource_metadata="` + b.url + judge.MetadataPath + `/mcp"`},
	} {
		got := post(t, b.url+"/mcp", "application/json", list, func(r *http.Request) {
			r.Header.Set("Accept", "application/json, text/event-stream")
			if tc.token != "" {
				r.Header.Set("Authorization", "Bearer "+tc.token)
			}
		})
		if got.status != 401 || got.header.Get("WWW-Authenticate") != tc.challenge || !strings.Contains(got.body, tc.code) || !json.Valid([]byte(got.body)) {
			t.Errorf("%s: %s with the challenge %q, want 401 %s with %q", name, got, got.header.Get("WWW-Authenticate"), tc.code, tc.challenge)
		}
	}
	// At the root the resource is the host; in shadow mode the application answers.
	wantAnswer(t, "at the root", fetch(t, "GET", b.url+judge.MetadataPath, nil), 200, `{"resource":"`+b.url+`"`)
	set.revision, set.mode = 2, "shadow"
	p.deploy(b, set)
	if got := fetch(t, "GET", b.url+judge.MetadataPath, nil); strings.Contains(got.body, "authorization_servers") {
		t.Errorf("in shadow: %s, want the answer of the application", got)
	}
}
