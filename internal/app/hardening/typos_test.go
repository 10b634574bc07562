package hardening_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestUnknownMembersOfOpenObjects checks that a typo in a bouncer's configuration or a tenant's
// settings is refused with the nearest name, on create and on update. A client may read stored
// members and send them back.
func TestUnknownMembersOfOpenObjects(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		bouncer := body{"name": "edge", "hostname": "edge.example", "port": 8443}
		with := func(members body, name string, v any) body {
			out := maps.Clone(members)
			out[name] = v
			return out
		}
		made := a.Do(t, "POST", "/bouncers", with(bouncer, "configuration", body{"x-team": body{"a": 1}, "identity": body{"issuer": "i", "x-note": 1}})).Want(201)
		edge := fmt.Sprint("/bouncers/", made.Get("id"))
		resource := fmt.Sprint("/resources/", a.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/r"}).Want(201).ID())
		for _, c := range []struct {
			method, path string
			body         body
			want         []string
		}{
			{"POST", "/bouncers", with(with(bouncer, "name", "two"), "configuration", body{"cahce_ttl": "1s", "identity": body{"isuer": "x"}}), []string{"/configuration/cahce_ttl", `\"cache_ttl\"`, "/configuration/identity/isuer", `\"issuer\"`}},
			{"POST", "/bouncers", body{"port": "x", "configuration": body{"cahce_ttl": "1s"}}, []string{"/port", "/hostname", "/configuration/cahce_ttl"}},
			// An error of the schema hides no typo.
			{"PUT", edge, body{"port": "x", "colour": 1, "configuration": body{"cahce_ttl": "1s", "identity": body{"isuer": "x"}}}, []string{"/port", "/colour", "/configuration/cahce_ttl", `\"cache_ttl\"`, "/configuration/identity/isuer"}},
			{"PUT", edge, body{"resource_ids": []any{1, "x"}, "hostname": "a b", "configuration": body{"cahce_ttl": "1s"}}, []string{"/resource_ids/1", "/hostname", "/configuration/cahce_ttl"}},
			{"POST", "/bouncers", body{"name": "two", "hostname": "h", "port": 70000, "configuration": body{"identity": body{"isuer": "x"}}}, []string{"/port", "/configuration/identity/isuer"}},
			{"PUT", "/tenants/default", body{"plan_type": "gold", "colour": 1, "settings": body{"max_polices": 3}}, []string{"/plan_type", "/colour", "/settings/max_polices"}},
			{"PUT", "/tenants/default", body{"settings": body{"max_policies": "x", "max_polices": 3, "replay": body{"hour": 2}}}, []string{"/settings/max_policies", "/settings/max_polices", "/settings/replay/hour"}},
			{"POST", "/tenants", body{"name": 7, "settings": body{"max_users": -1, "max_user": 3}}, []string{"/name", "/settings/max_users", "/settings/max_user"}},
			{"POST", "/resources", body{"name": 7, "type": "api", "path": "/a/**/b", "colour": 1}, []string{"/name", "/path", "/colour"}},
			{"PUT", resource, body{"methods": "GET", "path": "/a/**/b", "colour": 1}, []string{"/methods", "/path", "/colour"}},
			{"PUT", resource + "/enrich", body{"data_classification": "nonsense", "colour": 1}, []string{"/data_classification", "/colour"}},
			{"POST", "/users", body{"username": "", "email": "x", "colour": 1}, []string{"/username", "/colour"}},
			{"PUT", "/policies/1", body{"name": 7, "colour": 1}, []string{"/name", "/colour"}},
			{"PUT", edge, body{"configuration": body{"Enforcement_Mode": "shadow"}}, []string{"/configuration/Enforcement_Mode", `\"enforcement_mode\"`}},
			{"PUT", edge, body{"configuration": body{"identity": body{"token-header": "X-Token"}}}, []string{"/configuration/identity/token-header", `\"token_header\"`}},
			{"PUT", "/tenants/default", body{"settings": body{"four-eyes": true, "max_polices": 3}}, []string{"/settings/four-eyes", `\"four_eyes\"`, "/settings/max_polices", `\"max_policies\"`}},
			{"PUT", "/tenants/default", body{"settings": body{"replay": body{"hour": 2}}}, []string{"/settings/replay/hour", `\"hours\"`}},
			{"PUT", "/tenants/default", body{"settings": body{"flags": body{"resources": body{"assist_classification": true}}}}, []string{"/settings/flags/resources/assist_classification", "flags.resources.assist_classification"}},
			{"POST", "/tenants", body{"name": "typo", "settings": body{"max_user": 3}}, []string{"/settings/max_user", `\"max_users\"`}},
		} {
			res := a.Do(t, c.method, c.path, c.body).Want(422)
			for _, text := range c.want {
				if strings.HasPrefix(text, "/") {
					text = fmt.Sprintf(`"pointer":%q`, text) // the whole pointer
				}
				if !strings.Contains(string(res.Body), text) {
					t.Errorf("%s %s with %v = %s, want %q", c.method, c.path, c.body, res.Body, text)
				}
			}
		}
		a.Do(t, "PUT", "/tenants/default", body{"settings": body{"x-theme": "dark", "four_eyes": nil, "nonsense": nil}}).Want(200)
	})
}

// TestUnknownEnvironment checks that the program warns at its start of an environment variable with
// a typo, without its value.
func TestUnknownEnvironment(t *testing.T) {
	for _, command := range []string{"server", "bouncer"} {
		cmd := exec.CommandContext(t.Context(), apptest.Binary(t), command)
		cmd.Env = append(os.Environ(), "NOTIFICATION_ENCRYPTION_KEY=", "GATEHOUSE_LISTN=secret-value", "GATEHOUSE_BOUNCER_TOKN=x", "GATEHOUSE_COLOUR=red",
			"GATEHOUSE_SERVICE_HOST=10.0.0.1", "GATEHOUSE_SERVICE_PORT=80", "GATEHOUSE_PORT=tcp://10.0.0.1:80", "GATEHOUSE_PORT_80_TCP_ADDR=10.0.0.1",
			"GATEHOUSE_API_SERVICE_HOST=10.0.0.1", "GATEHOUSE_SESSION=/nowhere", "GATEHOUSE_LOG_LEVEL=info", "GATEHOUSE_URL=http://127.0.0.1:1")
		out, err := cmd.CombinedOutput() // the program ends at once, because the key or the token is missing
		if err == nil {
			t.Errorf("gatehouse %s started without its key or token, want an error", command)
		}
		var warned []string
		for line := range strings.Lines(string(out)) {
			if _, rest, found := strings.Cut(line, `"variable":"`); found {
				name, _, _ := strings.Cut(rest, `"`)
				_, near, _ := strings.Cut(line, `did you mean \"`)
				near, _, _ = strings.Cut(near, `\"`)
				warned = append(warned, name+" "+near)
			}
		}
		want := []string{"GATEHOUSE_BOUNCER_TOKN GATEHOUSE_BOUNCER_TOKEN", "GATEHOUSE_COLOUR ", "GATEHOUSE_LISTN GATEHOUSE_LISTEN"}
		if got := strings.Join(warned, ", "); got != strings.Join(want, ", ") || strings.Contains(string(out), "secret-value") {
			t.Errorf("gatehouse %s warned of %s, want %s without a value\n%s", command, got, strings.Join(want, ", "), out)
		}
	}
}
