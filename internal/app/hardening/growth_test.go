package hardening_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

var growthCases = []hardeningCase{
	{"R4 evaluations that grow", growingEvaluations},
	{"R4 sources that grow when they are checked", growingSources},
	{"R4 evaluations that grow on a bouncer", growingOnABouncer},
}

// doubled are rules a1 to a<n>, each of eight times the one before, in a form
// that the type checker does not write out.
func doubled(n int) string {
	var out strings.Builder
	out.WriteString("a0 := [1, 2, 3]\n")
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&out, "a%d := [a%d | some _ in numbers.range(1, 8)]\nb%d := [b%d | some _ in numbers.range(1, 8)]\n", i, i-1, i, i-1)
	}
	return out.String() + "b0 := [1, 2, 3]\n"
}

// bounded is a rule held that an author could write to use up the machine. ends
// tells that it has to come to an end at a bound; the others are cheap or end there.
type bounded struct {
	rule string
	ends bool
}

var growing = map[string]bounded{
	"a set of shared parts":        {"count({a10, b10}) == 1", true},
	"an object of shared parts":    {`count({a10: 1, b10: 2}) == 1`, true},
	"equal shared parts":           {"a10 == b10", true},
	"shared parts in a list":       {"a10 in [b10]", true},
	"a difference of shared parts": {"count({a10} - {b10}) == 0", true},
	"shared parts as JSON":         {`json.marshal(a10) == ""`, true},
	"shared parts as YAML":         {`yaml.marshal(a10) == ""`, true},
	"shared parts as text":         {`sprintf("%v", [a10]) == ""`, true},
	"a walk of shared parts":       {"walk(a10, [_, v]); v == 7", true},
	"flat shared parts":            {"count(array.flatten(a10)) == 1", false},
	"sorted shared parts":          {"count(sort([a10, b10])) == 1", true},
	"a token's number":             {"io.jwt.decode(input.context.token)[1].exp * 1000 > 0", true},
	"a number in JSON":             {`json.unmarshal("1e30000000") > 0`, true},
	"a number in YAML":             {`yaml.unmarshal("a: 1e30000000").a > 0`, true},
	"a number in units":            {`units.parse("1e30000000") > 0`, true},
	"a number in a text":           {`to_number(input.context.number) + 1 > 0`, true},
	"networks by networks":         {`count(net.cidr_contains_matches([sprintf("10.%d.%d.0/24", [i % 256, i % 7]) | some i in numbers.range(1, 20000)], [sprintf("10.%d.%d.1", [i % 256, i % 5]) | some i in numbers.range(1, 20000)])) > 0`, true},
	"merged networks":              {`count(net.cidr_merge([sprintf("10.%d.%d.%d/32", [i % 256, (i * 7) % 256, (i * 13) % 256]) | some i in numbers.range(1, 60000)])) > 0`, false},
	"all addresses":                {`count(net.cidr_expand("::/0")) > 0`, true},
	"subset of a list":             {"object.subset([x | some x in numbers.range(1, 30000)], {x | some x in numbers.range(1, 30000)} | {[1]})", false},
	"paths of a graph":             {"count(graph.reachable_paths({i: [j | some j in numbers.range(1, 14)] | some i in numbers.range(1, 14)}, [1])) > 0", true},
	"a reachable graph":            {"count(graph.reachable({i: [j | some j in numbers.range(1, 2000)] | some i in numbers.range(1, 2000)}, [1])) > 0", true},
	"YAML aliases":                 {`count(yaml.unmarshal("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]")) == 0`, false},
	"stars of a glob":              {`some _ in numbers.range(1, 100000); glob.match("*a*a*a*a*a*a*a*a*a*a*a*b", [], input.context.long)`, true},
	"braces of a glob":             {`glob.match(concat("", ["{a,b}" | some _ in numbers.range(1, 800)]), [], input.context.long)`, false},
	"two globs":                    {`regex.globs_match(concat("", [".*a" | some _ in numbers.range(1, 40)]), concat("", ["a.*" | some _ in numbers.range(1, 40)]))`, false},
	"a large pattern":              {`some i in numbers.range(900, 1000); some j in numbers.range(900, 1000); regex.match(sprintf("((a{%d}){%d})", [i, j]), input.context.long); false`, false},
	"a long text":                  {`some _ in numbers.range(1, 100000); regex.match("(a|aa)+$", input.context.long); false`, true},
	"all matches":                  {`count(regex.find_all_string_submatch_n("(a)(a)?(a)?", concat("", [input.context.long | some _ in numbers.range(1, 40)]), -1)) == 1`, false},
	"wide text":                    {`some _ in numbers.range(1, 10000); count(sprintf("%999999d", [1])) == 1`, true},
	"text that doubles":            {`x := concat("", [input.context.long | some _ in numbers.range(1, 1000)]); count(concat(x, [x, x, x])) == 1`, true},
	"replaced text":                {`count(replace(input.context.long, "", input.context.long)) == 1`, true},
	"much replaced text":           {`count(strings.replace_n({"a": input.context.long, "aa": input.context.long}, input.context.long)) == 1`, true},
	"positions in a text":          {`some _ in numbers.range(1, 100000); count(indexof_n(input.context.long, "a")) == 1`, true},
	"shifted bits":                 {"bits.lsh(1, 1000000000) > 0", true},
	"a number to a base":           {`count(format_int(1e300, 2)) == 1; some _ in numbers.range(1, 10000000); false`, false},
	"a long range":                 {"count(numbers.range(1, 1000000000000)) == 1", true},
	"patches":                      {`some _ in numbers.range(1, 10000); json.patch({"l": [1]}, [{"op": "add", "path": "/l/0", "value": i} | some i in numbers.range(1, 1000)]) == 1`, true},
	"united objects":               {`some _ in numbers.range(1, 100000); count(object.union_n([{i: {j: 1 | some j in numbers.range(1, 30)}} | some i in numbers.range(1, 30)])) == 0`, true},
	"base64":                       {`some _ in numbers.range(1, 1000000); base64.encode(hex.encode(input.context.long)) == ""`, true},
}

// growthContext is the context of requests: a long text, and numbers that a
// caller controls.
func growthContext() body {
	enc := base64.RawURLEncoding.EncodeToString
	return body{
		"long": strings.Repeat("a", 8000), "number": "1e30000000",
		"token": enc([]byte(`{"alg":"none"}`)) + "." + enc([]byte(`{"exp":1e30000000}`)) + ".",
	}
}

// growthSource is a control that permits where the rule holds. Half of them ask
// with another input, which starts the evaluation anew.
func growthSource(rule, with string) string {
	return "package g\n\n" + doubled(10) + "\nheld if { " + rule + " }\n\nallow if held" + with + "\n"
}

// growthLimit is what an evaluation may take in memory: 32 MiB count, and what a
// garbage collector leaves beside.
const growthLimit = 200 << 20

// patience is when an answer is late: evaluations end after 250 ms, and the
// machine of a test may be busy.
const patience = 20 * time.Second

// growingEvaluations: neither the memory nor the time of the server is one
// author's or one caller's, and another tenant is served meanwhile.
func growingEvaluations(t *testing.T, r *rig) {
	p := r.tenant(t, "Growth")
	paths := map[string]string{}
	n := 0
	for name, g := range growing {
		for _, with := range []string{"", " with input.context.more as 1"} {
			n++
			path := fmt.Sprintf("/growth/%d", n)
			at := p.admin.Do(t, "POST", "/resources", body{"name": path, "type": "api", "path": path, "environment": "sandbox"}).Want(201).ID()
			begun := time.Now()
			r.control(t, p, body{"status": "active", "resource_id": at, "rego_code": growthSource(g.rule, with)})
			if took := time.Since(begun); took > patience {
				t.Errorf("%s%s took %s to store", name, with, took)
			}
			paths[name+with] = path
		}
	}
	stop, served := r.meanwhile(t)
	before := r.s.Resident(t)
	for name, g := range growing {
		for _, with := range []string{"", " with input.context.more as 1"} {
			begun := time.Now()
			res := p.key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{
				"user": body{"id": "u"}, "resource": body{"type": "api", "path": paths[name+with]}, "context": growthContext(),
			}).Want(200)
			if took := time.Since(begun); took > patience {
				t.Errorf("%s%s took %s", name, with, took)
			}
			reason, _ := res.Get("reason").(string)
			if limit := strings.Contains(reason, "evaluation_limit"); g.ends && !limit || limit && res.Get("decision") != "DENY" {
				t.Errorf("%s%s: %s", name, with, res.Body)
			}
		}
	}
	r.s.CheckGrowth(t, before, growthLimit)
	close(stop)
	if n := <-served; n == 0 {
		t.Error("the other tenant had no decision meanwhile")
	}
	if text := r.s.Admin.Do(t, "GET", "/metrics", nil).Want(200).Body; !bytes.Contains(text, []byte(`gatehouse_panics_total{where="decision"} 0`)) {
		t.Error("a control made the evaluator panic, or that is not counted")
	}
}

// meanwhile has another tenant decide until stop is closed, and then tells how
// often it had an answer in time.
func (r *rig) meanwhile(t *testing.T) (stop chan struct{}, served chan int) {
	stop, served = make(chan struct{}), make(chan int, 1)
	key := r.beta.key
	go func() {
		n := 0
		defer func() { served <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			begun := time.Now()
			res, err := key.Try("POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "u"}, "resource": body{"type": "api", "path": "/x"}})
			switch took := time.Since(begun); {
			case err != nil || res.Status != 200 && res.Status != 429:
				t.Errorf("the other tenant: %v, %v", res, err)
				return
			case took > patience:
				t.Errorf("the other tenant waited %s", took)
			case res.Status == 200:
				n++
			}
		}
	}()
	return stop, served
}

// growingSources: sources whose check grows with the power of their length are
// refused or stored in a bounded time, and never take the server's memory.
func growingSources(t *testing.T, r *rig) {
	p := r.tenant(t, "Sources")
	before := r.s.Resident(t)
	for levels := 3; levels <= 9; levels++ {
		for _, shape := range []string{"[%, %, %, %, %, %, %, %]", `{"a": %, "b": %, "c": %, "d": %, "e": %, "f": %, "g": %, "h": %}`, "{[%, 1], [%, 2], [%, 3], [%, 4]}"} {
			var src strings.Builder
			src.WriteString("package s\n\na0 := [1, \"x\", {\"y\": true}]\n")
			for i := 1; i <= levels; i++ {
				fmt.Fprintf(&src, "a%d := %s\n", i, strings.ReplaceAll(shape, "%", fmt.Sprintf("a%d", i-1)))
			}
			fmt.Fprintf(&src, "\nallow if a%d == input.x\n", levels)
			begun := time.Now()
			res := p.admin.Do(t, "POST", "/policies", body{"name": r.name("grows"), "environment": "sandbox", "status": "active", "rego_code": src.String()})
			if res.Status != 201 && res.Status != 422 {
				t.Errorf("%d levels of %s: %d %.300s", levels, shape, res.Status, res.Body)
			}
			p.key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "u"}}).Want(200)
			if took := time.Since(begun); took > patience {
				t.Errorf("%d levels of %s took %s", levels, shape, took)
			}
		}
	}
	r.s.CheckGrowth(t, before, growthLimit)
}

// growingOnABouncer: what a caller sends makes no bouncer work without end.
func growingOnABouncer(t *testing.T, r *rig) {
	p := r.tenant(t, "Edge")
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	rules := map[string]string{
		"token": `io.jwt.decode(input.context.headers["x-token"])[1].exp * 1000 > 0`, "shared": growing["a set of shared parts"].rule,
		"matches": growing["networks by networks"].rule, "glob": `some _ in numbers.range(1, 100000); glob.match("*a*a*a*a*a*a*a*a*a*b", [], input.context.headers["x-token"])`,
	}
	var guarded []int64
	for name, rule := range rules {
		at := p.admin.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/" + name, "environment": "sandbox"}).Want(201).ID()
		r.control(t, p, body{"status": "active", "resource_id": at, "rego_code": growthSource(rule, "")})
		guarded = append(guarded, at)
	}
	quiet := p.admin.Do(t, "POST", "/resources", body{"name": "quiet", "type": "api", "path": "/quiet", "environment": "sandbox"}).Want(201).ID()
	r.control(t, p, body{"status": "active", "resource_id": quiet})
	p.admin.Do(t, "PUT", "/environments/sandbox/enforcement", body{"mode": "enforce"}).Want(200)
	b := r.s.Bouncer(t, p.admin, apptest.Body{"name": r.name("edge"), "environment": "sandbox", "resource_ids": append(guarded, quiet)}, strings.TrimPrefix(app.URL, "http://"))
	var all sync.WaitGroup
	for name := range rules {
		for range 2 {
			all.Go(func() {
				begun := time.Now()
				res, err := b.As("u", "g").With("X-Token", growthContext()["token"].(string)).Try("GET", "/"+name, nil)
				if err != nil || res.Status < 400 {
					t.Errorf("%s: %v %v", name, res, err)
				}
				if took := time.Since(begun); took > patience {
					t.Errorf("%s took %s", name, took)
				}
			})
		}
	}
	res, err := b.As("u", "g").Try("GET", "/quiet", nil)
	if err != nil || res.Status != 200 {
		t.Errorf("another path meanwhile: %v %v", res, err)
	}
	all.Wait()
}
