package gatehouse

import (
	"slices"
	"strings"
	"testing"
)

// layer is a set of packages that do not import each other.
type layer struct {
	name     string
	packages []string
}

// layers lists all packages, from the lowest layer to the highest. A package imports only from
// layers below its own. If a package fits nowhere, add a layer: layers have no numbers.
// ARCHITECTURE.md says what each package is.
var layers = []layer{
	{"foundation and test helpers", []string{
		"internal/blob/s3test",
		"internal/dnstest",
		"internal/errtest",
		"internal/fault",
		"internal/freeport",
		"internal/fulltest",
		"internal/timetest",
		"internal/totptest",
	}},
	{"general-purpose packages", []string{
		"docs",
		"internal/audit/digest",
		"internal/classify",
		"internal/contract",
		"internal/fold",
		"internal/framing",
		"internal/gitpack",
		"internal/histogram",
		"internal/jwks",
		"internal/negotiate",
		"internal/patch",
		"internal/pause",
		"internal/scim/document",
		"internal/scope",
		"internal/secret",
		"internal/template",
		"internal/truncate",
	}},
	{"announcements between replicas", []string{
		"internal/db/listen",
	}},
	{"storage and network", []string{
		"internal/cache",
		"internal/counterfile",
		"internal/db",
		"internal/fastpath",
		"internal/outbound",
		"internal/spool",
		"internal/tracing",
	}},
	{"storage services", []string{
		"internal/audit/stats",
		"internal/blob",
		"internal/cache/cachetest",
		"internal/db/dbtest",
		"internal/db/tablecopy",
		"internal/event",
		"internal/job",
		"internal/kafka",
		"internal/live",
		"internal/notify/format",
		"internal/oci",
		"internal/outbound/outboundtest",
		"internal/secret/reseal",
	}},
	{"values", []string{
		"internal/rego/value",
	}},
	{"targets, masks, module shapes, explanations", []string{
		"internal/rego/masking",
		"internal/rego/reason",
		"internal/rego/shape",
		"internal/rego/target",
		"internal/rego/value/valuetest",
	}},
	{"what an evaluation uses", []string{
		"internal/audit/actor",
		"internal/memory",
		"internal/pip/source",
		"internal/redact",
		"internal/rego/eval",
		"internal/simulator/record",
	}},
	{"built-in functions", []string{
		"internal/rego/builtin",
	}},
	{"evaluators", []string{
		"internal/rego/native",
		"internal/rego/oracle",
	}},
	{"explanations of a module", []string{
		"internal/rego/why",
	}},
	{"the language of controls", []string{
		"internal/rego/lang",
	}},
	{"the PDP", []string{
		"internal/rego",
	}},
	{"around the PDP", []string{
		"internal/assist",
		"internal/rego/bundle",
		"internal/rego/explain",
	}},
	{"test suites and replay", []string{
		"internal/rego/suite",
		"internal/replay/compare",
	}},
	{"controls as files", []string{
		"internal/controlfile",
	}},
	{"worker process", []string{
		"internal/worker",
	}},
	{"audit log", []string{
		"internal/audit",
	}},
	{"readers of the audit log", []string{
		"internal/audit/tail",
	}},
	{"what a tenant owns", []string{
		"internal/anomaly",
		"internal/notify",
		"internal/policy/actions",
		"internal/resource",
		"internal/tenant",
		"internal/user",
		"internal/webhook",
	}},
	{"sign-in factors", []string{
		"internal/factor",
		"internal/lockout",
		"internal/user/usertest",
	}},
	{"credentials, controls, decisions", []string{
		"internal/access",
		"internal/alert",
		"internal/auth",
		"internal/bouncer",
		"internal/decision",
		"internal/domain",
		"internal/integration",
		"internal/metering",
		"internal/pip",
		"internal/policy",
		"internal/region",
	}},
	{"uses of credentials, controls and decisions", []string{
		"internal/action",
		"internal/agent",
		"internal/authzen",
		"internal/bridge",
		"internal/dashboard",
		"internal/policycode",
		"internal/replay",
		"internal/scim",
		"internal/servertls",
		"internal/signon",
		"internal/simulator",
		"internal/telemetry",
		"internal/vendor",
	}},
	{"editors and reports", []string{
		"internal/ide",
		"internal/report",
	}},
	{"parts of the API framework", []string{
		"internal/rest/bind",
		"internal/rest/edition",
		"internal/rest/errorform",
		"internal/rest/measure",
		"internal/rest/origin",
		"internal/rest/schema",
		"internal/rest/site",
	}},
	{"API framework", []string{
		"internal/rest",
		"internal/rest/resttest",
	}},
	{"the data plane: readings of text", []string{
		"internal/enforce/header",
		"internal/enforce/ids",
		"internal/enforce/plaintext",
		"internal/enforce/spelling",
		"internal/enforce/wire",
	}},
	{"the data plane: messages", []string{
		"internal/enforce/bodies",
		"internal/enforce/extauthz",
		"internal/enforce/identity",
		"internal/enforce/llm",
		"internal/enforce/mcp",
		"internal/enforce/metrics",
		"internal/enforce/pii",
		"internal/enforce/upstream",
	}},
	{"the data plane: masks", []string{
		"internal/enforce/mask",
	}},
	{"the data plane: uses of messages", []string{
		"internal/enforce/controlplane",
		"internal/enforce/journal",
		"internal/enforce/session",
		"internal/enforce/usage",
	}},
	{"the data plane: settings and discovery", []string{
		"internal/enforce/discovery",
		"internal/enforce/settings",
	}},
	{"the data plane: bundles and requests", []string{
		"internal/enforce/bundlesync",
		"internal/enforce/panics",
		"internal/enforce/request",
	}},
	{"the data plane: judgement", []string{
		"internal/enforce/judge",
		"internal/enforce/status",
	}},
	{"the data plane: uses of a verdict", []string{
		"internal/enforce/record",
		"internal/enforce/refuse",
	}},
	{"the data plane: masked bodies", []string{
		"internal/enforce/maskbody",
	}},
	{"the data plane: MCP", []string{
		"internal/enforce/mcpguard",
	}},
	{"the data plane: to the application", []string{
		"internal/enforce/relay",
	}},
	{"the data plane: shadow decisions", []string{
		"internal/enforce/shadow",
	}},
	{"the data plane: other proxies", []string{
		"internal/enforce/gateway",
	}},
	{"parts of the front ends", []string{
		"internal/api/bridge",
		"internal/api/connect",
		"internal/api/controls",
		"internal/api/decisions",
		"internal/api/editors",
		"internal/api/estate",
		"internal/api/events",
		"internal/api/identity",
		"internal/api/insight",
		"internal/api/oem",
		"internal/api/simulate",
		"internal/api/system",
		"internal/client",
		"internal/devdocs",
		"internal/webui",
	}},
	{"front ends", []string{
		"internal/api",
		"internal/cli",
		"internal/enforce",
		"internal/lsp",
	}},
	{"assembly", []string{
		"internal/app",
	}},
	{"programs", []string{
		"bench",
		"cmd/gatehouse",
		"internal/app/apptest",
	}},
}

// dataPlane is all that internal/enforce and its folders may import beside each
// other: a bouncer needs no store.
var dataPlane = []string{
	"internal/audit/actor",
	"internal/fault",
	"internal/fold",
	"internal/framing",
	"internal/jwks",
	"internal/outbound",
	"internal/pause",
	"internal/redact",
	"internal/rego",
	"internal/rego/bundle",
	"internal/rego/explain",
	"internal/rego/lang",
	"internal/rego/masking",
	"internal/rego/reason",
	"internal/rego/target",
	"internal/rego/value",
	"internal/scope",
	"internal/secret",
	"internal/spool",
	"internal/truncate",
}

// floors is the position of each package's layer in layers.
func floors(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	for i, l := range layers {
		if !slices.IsSorted(l.packages) {
			t.Errorf("layer %q is not sorted", l.name)
		}
		for _, dir := range l.packages {
			if at, twice := out[dir]; twice {
				t.Errorf("%s is in the layers %q and %q", dir, layers[at].name, l.name)
			}
			out[dir] = i
		}
	}
	return out
}

func inDataPlane(dir string) bool {
	return dir == "internal/enforce" || strings.HasPrefix(dir, "internal/enforce/")
}

// checkImports: imports go down, the data plane needs no store, and the table names
// the packages that exist.
func checkImports(t *testing.T, files []source) {
	floor, seen := floors(t), map[string]bool{}
	for _, s := range files {
		if s.test || s.dir == "." {
			continue
		}
		seen[s.dir] = true
		own, known := floor[s.dir]
		if !known {
			t.Errorf("%s is in no layer", s.dir)
			continue
		}
		for _, im := range s.imports() {
			rel, ours := strings.CutPrefix(im, module)
			if !ours {
				continue
			}
			low, known := floor[rel]
			switch {
			case !known:
				t.Errorf("%s/%s imports %s, which is in no layer", s.dir, s.name, rel)
			case inDataPlane(s.dir) && !inDataPlane(rel) && !slices.Contains(dataPlane, rel):
				t.Errorf("%s/%s: the data plane may not import %s", s.dir, s.name, rel)
			case low >= own:
				t.Errorf("%s/%s (layer %q) imports %s (layer %q), which is not below it", s.dir, s.name, layers[own].name, rel, layers[low].name)
			}
		}
	}
	for dir := range floor {
		if !seen[dir] {
			t.Errorf("the layers name %s, which has no Go file", dir)
		}
	}
}
