package enforce

import (
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// metadata serves the metadata of the protected resource (RFC 9728) in place of the application,
// if the bouncer verifies tokens. It returns false for any other request. In shadow mode it serves
// none, because there the client must see only the application.
func (b *Bouncer) metadata(w http.ResponseWriter, in *request.Inbound, st *settings.State) bool {
	path, ok := strings.CutPrefix(in.Path, judge.MetadataPath)
	if !ok || path != "" && path[0] != '/' || st.Tokens == nil || st.Mode == settings.Shadowing {
		return false
	}
	if in.Method != http.MethodGet && in.Method != http.MethodHead {
		return false
	}
	text := func(name, s string) value.Member { return value.Member{Key: name, Value: value.String(s)} }
	list := func(name, s string) value.Member { return value.Member{Key: name, Value: value.Array(value.String(s))} }
	doc := value.Object(
		text("resource", in.Scheme()+"://"+in.Host+path),
		list("authorization_servers", st.Tokens.Issuer()),
		list("bearer_methods_supported", "header"),
		text("resource_name", st.Name),
	)
	w.Header().Set("Access-Control-Allow-Origin", "*") // clients in a browser read it too
	b.writeJSON(w, http.StatusOK, string(doc.AppendJSON(nil)))
	return true
}
