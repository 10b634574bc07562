package enforce

import (
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// metadataPath is where a protected resource says who issues its tokens (RFC
// 9728 section 3); the path of the resource follows it.
const metadataPath = "/.well-known/oauth-protected-resource"

// codeNoToken says that a request was refused while it carried no token.
const codeNoToken = "authentication_required"

// metadata answers for the application where we are the one who verifies the
// tokens; false: the request is another. In shadow mode nothing differs from
// direct access.
func (b *Bouncer) metadata(w http.ResponseWriter, in *request.Inbound, st *settings.State) bool {
	rest, ours := strings.CutPrefix(in.Path, metadataPath)
	if !ours || rest != "" && rest[0] != '/' || st.Tokens == nil || st.Mode == settings.Shadowing {
		return false
	}
	if in.Method != http.MethodGet && in.Method != http.MethodHead {
		return false
	}
	text := func(name, s string) value.Member { return value.Member{Key: name, Value: value.String(s)} }
	list := func(name, s string) value.Member { return value.Member{Key: name, Value: value.Array(value.String(s))} }
	doc := value.Object(
		text("resource", in.Scheme()+"://"+in.Host+rest),
		list("authorization_servers", st.Tokens.Issuer()),
		list("bearer_methods_supported", "header"),
		text("resource_name", st.Name),
	)
	w.Header().Set("Access-Control-Allow-Origin", "*") // clients in a browser read it, too
	b.writeJSON(w, http.StatusOK, string(doc.AppendJSON(nil)))
	return true
}

// challengeCaller has a caller without a token be asked for one, with 401, where one could
// help: keys are configured, and the decision depends on who asks. Clients of MCP
// begin to authorize at a 401 that names the metadata (MCP, authorization), so that
// they are asked at every denial. inPath is set where we serve the metadata: a
// gateway that only asks us does not.
func (b *Bouncer) challengeCaller(st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict, inPath bool) {
	if st.Tokens == nil || v.pass {
		return
	}
	if inPath {
		in.MetadataURL = in.Scheme() + "://" + in.Host + metadataPath
		if in.Path != "/" && !strings.ContainsAny(in.Path, `"\`) {
			in.MetadataURL += in.Path
		}
	}
	if v.no.Code == "access_denied" && !who.Proven() && (in.Seen != nil && (in.Seen.RPC != nil || in.Seen.Serves.MCP) || request.ServesMCP(v.dec.Resource) || v.asksWho()) {
		v.no = *request.Refuse(http.StatusUnauthorized, codeNoToken, v.no.Message)
	}
}

// asksWho reports whether the control that denied, or, where none did and none
// allowed, any of those that ran, reads who asks.
func (v *verdict) asksWho() bool {
	for _, c := range v.dec.Ran {
		if v.dec.PolicyName != "" && c.Meta().ID != v.dec.PolicyID {
			continue
		}
		for _, path := range c.Refs().Input {
			if len(path) == 0 || path[0] == "user" || path[0] == "subject" {
				return true
			}
		}
	}
	return false
}

// challenge is the answer's WWW-Authenticate (RFC 6750 section 3, RFC 9728
// section 5.1).
func challenge(in *request.Inbound, no *request.Refusal) string {
	var with []string
	if no.Code != codeNoToken {
		with = append(with, `error="invalid_token"`)
	}
	if in.MetadataURL != "" {
		with = append(with, `resource_metadata="`+in.MetadataURL+`"`)
	}
	if len(with) == 0 {
		with = append(with, `realm="gatehouse"`) // RFC 6750 wants one parameter at least
	}
	return "Bearer " + strings.Join(with, ", ")
}
