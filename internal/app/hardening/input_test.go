package hardening_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var inputCases = []hardeningCase{
	{"I1 JSON that is none of ours", badJSON},
	{"I2 bodies over the limit", bigBodies},
	{"I3 compressed bodies", compressedBodies},
	{"I4 parameters out of range", badParameters},
	{"I5 text in parameters is text", literalParameters},
	{"I6 members that are not the caller's", massAssignment},
	{"I7 forms, origins, methods and paths", oddRequests},
}

func (op operation) takesJSON() bool { return slices.Contains(op.media, "application/json") }

// badJSON: every operation with a body refuses what is no JSON, or JSON that
// could be read in two ways, and nothing happens.
func badJSON(t *testing.T, r *rig) {
	many := func(item string, n int) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, item, i)
		}
		return b.String()
	}
	bad := map[string]string{
		"deep arrays":             strings.Repeat("[", 500_000),
		"deep objects":            strings.Repeat(`{"a":`, 150_000),
		"deep and closed":         `{"name":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + "}",
		"a member twice":          `{"name":"a","name":"b"}`,
		"a member twice, escaped": `{"name":"a","n\u0061me":"b"}`,
		"case twins":              `{"name":"a","Name":"b"}`,
		"case twins below":        `{"user":{"id":"a","ID":"b"}}`,
		"case twins of unicode":   `{"k":"a","\u212a":"b"}`,
		"too big a number":        `{"name":1e400}`,
		"bad UTF-8":               "{\"name\":\"\xff\xfe\"}",
		"overlong UTF-8":          "{\"name\":\"\xc0\xaf\"}",
		"a lone surrogate":        `{"name":"\ud800"}`,
		"bytes after it":          `{} {}`,
		"a comma after it":        `{},`,
		"a trailing comma":        `{"name":"a",}`,
		"a comment":               `{/* */}`,
		"single quotes":           `{'name':'a'}`,
		"NaN":                     `{"name":NaN}`,
		"a leading zero":          `{"name":01}`,
		"a plus":                  `{"name":+1}`,
		"hex":                     `{"name":0x1}`,
		"a bare word":             `name`,
		"a BOM":                   "\ufeff{}",
		"cut off":                 `{"name":"a`,
		"a control character":     "{\"name\":\"a\nb\"}",
		"nothing but a NUL":       "\x00",
	}
	big := map[string]string{"100k members": "{" + many(`"k%d":1`, 70_000) + "}", "100k items": `{"decisions":[` + many("%d", 100_000) + "]}"}
	before := r.s.Resident(t)
	r.unchanged(t, func() {
		for _, op := range r.ops {
			if !op.takesJSON() || op.bridge() {
				continue
			}
			path := op.at(r.alpha.valueOf)
			root := r.caller(op, r.alpha)
			for what, text := range bad {
				res := root.Do(t, op.method, path, []byte(text))
				if res.Status != 400 {
					t.Errorf("%s, %s: %d %.300s", op.id, what, res.Status, res.Body)
				}
				denial(t, res, op.id+" "+what)
			}
			if op.id == "evaluate-decision" || op.id == "opa-decision" {
				continue // its objects are open
			}
			refusals := []int{400, 422}
			if op.directory() { // so are those of SCIM, but they change nobody
				refusals = append(refusals, 403, 404)
			}
			for what, text := range big {
				if res := root.Do(t, op.method, path, []byte(text)); !slices.Contains(refusals, res.Status) {
					t.Errorf("%s, %s: %d %.300s", op.id, what, res.Status, res.Body)
				}
			}
		}
	})
	r.s.CheckGrowth(t, before, 128<<20)
	key := r.alpha.key
	for _, c := range []struct {
		method, path, text string
		want               int
	}{
		{"POST", "/bouncers", `{"name":"x","hostname":"h","port":9223372036854775808}`, 400},
		{"POST", "/bouncers", `{"name":"x","hostname":"h","port":9223372036854775807}`, 422},
		{"POST", "/bouncers", `{"name":"x","hostname":"h","port":1.5}`, 422},
		{"POST", "/bouncers", `{"name":"x","hostname":"h","port":1e3}`, 422},
		{"POST", "/bouncers", `{"name":"x","hostname":"h","port":"80"}`, 422},
		{"POST", "/bouncers", `{"name":"x","hostname":"h","port":null,"resource_ids":[1.0]}`, 422},
		{"POST", "/policies", `{"name":"x","rego_code":"package p","resource_id":18446744073709551617}`, 400},
		{"POST", "/policies", `{"name":"a\u0000b","rego_code":"package p"}`, 422},
		{"POST", "/policies", `{"Name":"x","rego_code":"package p"}`, 422},
		{"POST", "/policies", `[]`, 422},
		{"POST", "/policies", `"x"`, 422},
		{"POST", "/policies", `null`, 422},
		{"POST", "/policies", ``, 400},
		{"POST", "/decisions/evaluate", `[]`, 422},
		{"POST", "/decisions/evaluate", `{"Tenant_ID":"beta","tenant_id":"alpha"}`, 400},
		{"POST", "/decisions/evaluate", `{"usr":{}}`, 422},
	} {
		r.do(t, key, c.method, c.path, c.want, []byte(c.text))
	}
	// Every offence is told, each at its place.
	res := r.do(t, key, "POST", "/bouncers", 422, []byte(`{"name":1,"port":"x","environment":"moon","nonsense":1}`))
	for _, pointer := range []string{"/name", "/port", "/environment", "/nonsense"} {
		if !bytes.Contains(res.Body, []byte(`"`+pointer+`"`)) {
			t.Errorf("no %s in %s", pointer, res.Body)
		}
	}
}

// bigBodies: who asks is settled before a byte of a body is read, and no more
// of it is read than the operation takes; a hundred at once do no harm.
func bigBodies(t *testing.T, r *rig) {
	const declared = 100 << 20
	for _, op := range r.ops {
		if !op.body {
			continue
		}
		path := op.at(r.alpha.valueOf) + op.query()
		for shows, want := range map[bool]int{false: 401, true: 413} {
			if op.public {
				want = 413
			}
			for _, length := range []string{fmt.Sprintf("Content-Length: %d", declared), "Transfer-Encoding: chunked"} {
				head := op.method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: " + op.media[0] + "\r\n" + length + "\r\n"
				head += op.headers()
				if shows && !op.public {
					head += op.credential(r.caller(op, r.alpha))
				}
				status, sent := r.flood(t, head+"\r\n", length)
				if shows && op.bridge() {
					want = 403 // it is for bouncers
				}
				if status != want {
					t.Errorf("%s with 100 MB (%s): %d, want %d", op.id, length, status, want)
				}
				// What waits in the kernel's buffers counts as sent.
				if sent > 48<<20 {
					t.Errorf("%s took %d MiB of a body that it refused with %d", op.id, sent>>20, status)
				}
			}
		}
	}
	before := r.s.Resident(t)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			head := "POST /api/v1/decisions/evaluate/bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nX-API-Key: " + r.alpha.key.APIKey + "\r\n\r\n"
			if status, _ := r.flood(t, head, "Transfer-Encoding: chunked"); status != 413 && status != 503 {
				t.Errorf("one of a hundred: %d", status)
			}
		})
	}
	all.Wait()
	// A hundred bodies of 10 MiB would be a GiB; they take turns.
	r.s.CheckGrowth(t, before, 200<<20)
	r.do(t, r.alpha.key, "GET", "/policies", 200, nil)
}

// largestBody is more than any operation takes of a body.
const largestBody = 12 << 20

// flood sends a head and then a body without end, until the server answers or
// hangs up, and gives the status and the bytes that it let us send.
func (r *rig) flood(t *testing.T, head, length string) (status int, sent int64) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.s.URL, "http://"))
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, head); err != nil {
		t.Error(err)
		return 0, 0
	}
	answered := make(chan int, 1)
	go func() {
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			answered <- 0
			return
		}
		answered <- res.StatusCode
		conn.Close() // whoever still sends has heard enough
	}()
	if strings.HasPrefix(length, "Content-Length") {
		return <-answered, 0 // the declared length is enough to answer by
	}
	chunk := []byte("10000\r\n" + strings.Repeat(" ", 0x10000) + "\r\n")
	for sent < 100<<20 {
		var patience time.Duration
		if sent > largestBody { // the answer is due: do not outrun it
			patience = 20 * time.Millisecond
		}
		select {
		case status = <-answered:
			return status, sent
		case <-time.After(patience):
		}
		n, err := conn.Write(chunk)
		sent += int64(n)
		if err != nil {
			break
		}
	}
	return <-answered, sent
}

// compressedBodies: no operation unpacks a body but the bridge's, and that to
// a bound.
func compressedBodies(t *testing.T, r *rig) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	piece := bytes.Repeat([]byte(" "), 1<<20)
	for range 512 {
		_, _ = z.Write(piece) // a buffer takes all
	}
	_ = z.Close()
	before := r.s.Resident(t)
	for _, op := range r.ops {
		if !op.body || op.bridge() {
			continue
		}
		for _, encoding := range []string{"gzip", "deflate", "br", "zstd", "gzip, gzip", "x-gzip", "GZIP", "identity, gzip"} {
			c := r.caller(op, r.alpha)
			res := c.With("Content-Encoding", encoding).Do(t, op.method, op.at(r.alpha.valueOf), bomb.Bytes()[:1000])
			if res.Status != op.unsupported() {
				t.Errorf("%s with %s: %d %s", op.id, encoding, res.Status, res.Body)
			}
			denial(t, res, op.id)
		}
	}
	_, c := r.enforcer(t, r.alpha, nil)
	for _, path := range []string{"/bridge/logs", "/bridge/status"} {
		res := c.With("Content-Encoding", "gzip").Do(t, "POST", path, bomb.Bytes())
		if res.Status >= 500 {
			t.Errorf("a bomb for %s: %d %s", path, res.Status, res.Body)
		}
	}
	r.s.CheckGrowth(t, before, 256<<20)
	c.Do(t, "GET", "/bridge/self", nil).Want(200)
}

// badParameters: what does not fit a parameter's description is a 400 that
// names it, by every operation that has it; nothing makes a 500.
func badParameters(t *testing.T, r *rig) {
	integers := []string{"", "abc", "1e3", "1.0", "0x10", " 5", "5 ", "٣", "9223372036854775808", "1e18", "--1", "null", "[1]", "1;2"}
	for _, op := range r.secured() {
		if op.method != "GET" || op.bridge() {
			continue
		}
		path := op.at(r.alpha.valueOf)
		root := r.caller(op, r.alpha)
		try := func(name, value string, want ...int) {
			res := root.Do(t, "GET", path+"?"+name+"="+url.QueryEscape(value), nil)
			if !slices.Contains(want, res.Status) {
				t.Errorf("%s with %s=%q: %d %.300s", op.id, name, value, res.Status, res.Body)
			}
			if res.Status >= 400 {
				denial(t, res, op.id)
			}
		}
		for _, p := range op.params {
			if p.In != "query" {
				continue
			}
			switch p.Sch.Type {
			case "integer":
				for _, value := range integers {
					try(p.Name, value, 400)
				}
				if res := root.Do(t, "GET", path+"?"+p.Name+"=1&"+p.Name+"=1", nil); res.Status != 400 {
					t.Errorf("%s with %s twice: %d", op.id, p.Name, res.Status)
				}
			case "boolean":
				for _, value := range []string{"", "yes", "2", "TRUE "} {
					try(p.Name, value, 400)
				}
			}
			switch p.Name {
			case "limit":
				for _, value := range []string{"0", "-1", "1001", "1000000000000000000"} {
					try(p.Name, value, 400)
				}
				most := "1000"
				if p.Sch.Maximum != nil {
					most = fmt.Sprint(int(*p.Sch.Maximum))
				}
				try(p.Name, most, 200)
				try(p.Name, "1", 200)
			case "skip":
				try(p.Name, "-1", 400)
				try(p.Name, "9223372036854775807", 200, 400)
				try(p.Name, "1000000000000", 200, 400)
			case "start_date", "end_date":
				for _, value := range []string{"yesterday", "2026-13-01", "2026-02-30", "1e9", "0000-00-00", "2026-01-01T25:00:00Z"} {
					try(p.Name, value, 400)
				}
				for _, value := range []string{"9999-12-31T23:59:59Z", "0001-01-01"} {
					try(p.Name, value, 200, 400)
				}
				if res := root.Do(t, "GET", path+"?start_date=2026-02-01&end_date=2026-01-01", nil); res.Status != 400 {
					t.Errorf("%s with dates reversed: %d", op.id, res.Status)
				}
			case "cursor":
				for _, value := range []string{"x", "0", "-1", "eyJzZXEiOjF9", "' OR 1=1 --", strings.Repeat("A", 199), "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA"} {
					try(p.Name, value, 400)
				}
				try(p.Name, strings.Repeat("A", 5000), 400)
			}
		}
		for _, query := range []string{"?%zz", "?limit=%", "?a=1;b=2"} {
			if res := root.Do(t, "GET", path+query, nil); res.Status != 400 {
				t.Errorf("%s%s: %d", op.id, query, res.Status)
			}
		}
	}
	// An attribute is bounded by its body, and a decision's texts by nothing else.
	long := strings.Repeat("x", 900_000)
	res := r.alpha.key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "u", "note": long}})
	if res.Status != 200 && res.Status != 413 && res.Status != 422 || len(res.Body) > 10_000 {
		t.Errorf("a long attribute: %d with %d bytes", res.Status, len(res.Body))
	}
}
