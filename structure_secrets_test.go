package gatehouse

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// sealed lists every function that encrypts something with the operator's key, with the columns
// that it fills. Package reseal must know each of them, or else the values are lost when the operator
// drops an old key. What ends by itself within hours has a reason in parentheses instead: it needs the
// old key for no longer than docs/operations/backup.md says.
var sealed = map[string]string{
	"internal/auth.newSigningKey":      "signing_keys.sealed",
	"internal/bouncer.sealCredentials": "bouncer_credentials.sealed",
	"internal/bridge.add":              "mask_keys.sealed",
	"internal/bridge.newKey":           "bridge_keys.sealed",
	"internal/bridge.Credentials":      "(encrypted with the bouncer's token, and not stored)",
	"internal/domain.Account":          "acme_accounts.sealed_key",
	"internal/domain.SaveIssued":       "acme_certificates.sealed_key",
	"internal/domain.seal":             "domains.sealed_key",
	"internal/factor.Begin":            "user_factors.sealed",
	"internal/ide.sealed":              "ide_repositories.secret ide_repositories.access_token",
	"internal/enforce/mcpguard.Open":   "(the id of an MCP session, under a key that comes from the tenant's mask key)",
	"internal/integration.Create":      "integrations.credential",
	"internal/integration.Update":      "integrations.credential",
	"internal/integration.tokenOf":     "(kept until the system has the message; a new token is drawn if it does not open)",
	"internal/metering.Update":         "settings.accountRow",
	"internal/notify.seal":             "notification_channels.credential",
	"internal/pip.seal":                "pip_connections.credentials",
	"internal/rest.complete":           "(an answer to an Idempotency-Key is kept for 24 hours)",
	"internal/signon.applyChange":      "sign_on.sealed_secret",
	"internal/signon.federation":       "(a hint for the provider, which ends with the session; without it people confirm that they sign out)",
	"internal/signon.sealFlow":         "(a cookie of a sign-in, for minutes)",
	"internal/telemetry.seal":          "telemetry.api_key",
	"internal/vendor.provision":        "(an answer to an Idempotency-Key is kept for less than 24 hours)",
	"internal/webhook.seal":            "webhooks.secret webhooks.previous_secret",
}

// checkSealed: each function that seals is in the list, each column of the list is declared for package
// reseal, and package app uses each declaration.
func checkSealed(t *testing.T, files []source) {
	found, declared := map[string]bool{}, map[string]bool{}
	lists, used := 0, 0
	for _, s := range files {
		if s.test || s.dir == "internal/secret" || !strings.HasPrefix(s.dir, "internal/") {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if fn.Name.Name == "Secrets" {
				lists++
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if s.dir == "internal/app" && n.Sel.Name == "Secrets" {
						used++
					}
				case *ast.CallExpr:
					if isSeal(n) {
						name := s.dir + "." + fn.Name.Name
						if found[name] = true; sealed[name] == "" {
							t.Errorf("%s: %s seals a value: declare its column in Secrets of the package, and list both in structure_secrets_test.go", s.fset.Position(n.Pos()), name)
						}
					}
				case *ast.CompositeLit:
					if fn.Name.Name == "Secrets" {
						declared[columnOf(n)] = true
					}
				}
				return true
			})
		}
	}
	if lists != used || lists == 0 {
		t.Errorf("%d functions Secrets declare columns, and package app uses %d of them: startReseal must use each", lists, used)
	}
	for name, what := range sealed {
		if !found[name] {
			t.Errorf("%s no longer seals: remove it from the list", name)
		}
		if strings.HasPrefix(what, "(") {
			continue
		}
		for column := range strings.FieldsSeq(what) {
			if !declared[column] {
				t.Errorf("%s fills %s, which no function Secrets declares", name, column)
			}
		}
	}
}

// isSeal reports whether a call is that of Seal or SealMembers of a secret.Box: both take what they
// seal and its place. Seal of an AEAD takes four arguments.
func isSeal(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (sel.Sel.Name == "Seal" || sel.Sel.Name == "SealMembers") && len(call.Args) == 2
}

// columnOf returns the column of a reseal.Column in a source file: its members Table and Name.
func columnOf(lit *ast.CompositeLit) string {
	members := map[string]string{}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, ok := kv.Key.(*ast.Ident)
		if !ok {
			continue
		}
		switch v := kv.Value.(type) {
		case *ast.BasicLit:
			if v.Kind == token.STRING {
				members[key.Name], _ = strconv.Unquote(v.Value)
			}
		case *ast.Ident:
			members[key.Name] = v.Name
		}
	}
	return members["Table"] + "." + members["Name"]
}
