package source

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSCIM checks that the users of a directory are read by the rules of SCIM, with user names as keys.
func TestSCIM(t *testing.T) {
	const people = 230
	var filters []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		from, _ := strconv.Atoi(q.Get("startIndex"))
		count, _ := strconv.Atoi(q.Get("count"))
		filters = append(filters, q.Get("filter"))
		last := people
		if q.Get("filter") != "" {
			last = 1
		}
		found := []map[string]any{}
		for i := from; i < from+min(count, 50) && i <= last; i++ { // shorter pages than requested
			found = append(found, map[string]any{"id": strconv.Itoa(i), "userName": fmt.Sprintf("user%d", i), "active": i%2 == 0 || q.Get("filter") != ""})
		}
		if r.Header.Get("Authorization") != "Bearer token" || !strings.Contains(r.Header.Get("Accept"), "application/scim+json") {
			w.WriteHeader(http.StatusUnauthorized)
		}
		w.Header().Set("Content-Type", "application/scim+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"totalResults": last, "startIndex": from, "itemsPerPage": len(found), "Resources": found})
	})
	f := fetcher(t)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	f.Now = func() time.Time { return at }
	o := Order{Provider: SCIM, Credentials: Credentials{Token: "token"}, Config: Config{URL: url + "/scim/v2/Users", Fields: map[string]string{"active": "active"}, Incremental: &Incremental{}}}
	first := f.get(t, o)
	if first.Records != people || len(filters) != 5 || filters[0] != "" {
		t.Errorf("%d people with the filters %q, want %d with 5 requests without a filter", first.Records, filters, people)
	}
	if got := string(first.Data.Get("user1").AppendJSON(nil)); got != `{"active":false}` {
		t.Errorf("user1 is %s, want inactive", got)
	}
	o.State, o.Previous, filters = first.State, first.Data, nil
	o.State.Since, o.State.FullAt = at, at
	second := f.get(t, o)
	if want := []string{`meta.lastModified ge "2026-03-04T05:06:07Z"`}; !slices.Equal(filters, want) {
		t.Errorf("the filters are %q, want %q", filters, want)
	}
	if got := string(second.Data.Get("user1").AppendJSON(nil)); got != `{"active":true}` || second.Records != people {
		t.Errorf("after a change user1 of %d people is %s, want active of %d", second.Records, got, people)
	}
	for path, key := range map[string]string{"/Users": "userName", "/Groups/": "displayName", "/x": "id"} {
		if got := scimKey("https://a.example/scim/v2" + path); got != key {
			t.Errorf("scimKey(%s) = %s, want %s", path, got, key)
		}
	}
}

// TestS3 checks that a file is read with a signature that a store accepts, and is not read again until it
// changes.
func TestS3(t *testing.T) {
	const region = "eu-west-1"
	session := ""
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		switch {
		case r.URL.Path != "/bucket/people 1.csv" || r.Method != http.MethodGet:
			w.WriteHeader(http.StatusNotFound)
		case !signedS3(r, "access", "secret", session, region):
			w.WriteHeader(http.StatusForbidden)
		case r.Header.Get("If-None-Match") == `"one"`:
			w.WriteHeader(http.StatusNotModified)
		default:
			fmt.Fprint(w, "id,grade\nada,7\nbob,3\n")
		}
	})
	f := fetcher(t)
	o := Order{Provider: S3, Credentials: Credentials{Username: "access", Password: "secret"}, Config: Config{
		URL: url + "/bucket/people%201.csv", Format: formatCSV, Key: "id", Fields: map[string]string{"grade": "grade"}, S3: &Bucket{Region: region},
	}}
	res := f.get(t, o)
	if got := string(res.Data.AppendJSON(nil)); got != `{"ada":{"grade":"7"},"bob":{"grade":"3"}}` {
		t.Errorf("the data is %s, want the grades of ada and bob", got)
	}
	o.State, o.Previous = res.State, res.Data
	if again := f.get(t, o); !again.Unchanged {
		t.Errorf("the second fetch = %+v, want it unchanged", again)
	}
	// Temporary keys have a session token, which is also signed.
	session = "a/session+token=="
	f.wantFailure(t, o, "answered 403")
	o.Credentials.SessionToken = session
	if again := f.get(t, o); !again.Unchanged {
		t.Errorf("a fetch with a session token = %+v, want it unchanged", again)
	}
	o.Credentials.Password = "wrong"
	if failure := f.wantFailure(t, o, "answered 403"); failure.Status != http.StatusForbidden {
		t.Errorf("the status of the failure is %d, want 403", failure.Status)
	}
	o = Order{Provider: S3, Config: Config{URL: serveText(t, "id\nada\n"), Format: formatCSV, Fields: map[string]string{"who": "id"}}}
	if got := string(f.get(t, o).Data.AppendJSON(nil)); got != `[{"who":"ada"}]` {
		t.Errorf("the data of a public file is %s, want ada", got)
	}
}

// signedS3 reports whether a request without a body has a valid signature, as
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html describes it.
func signedS3(r *http.Request, access, secret, session, region string) bool {
	sum := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	hash := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	at := r.Header.Get("X-Amz-Date")
	if signed, err := time.Parse("20060102T150405Z", at); err != nil || time.Since(signed).Abs() > 15*time.Minute {
		return false
	}
	scope := at[:8] + "/" + region + "/s3/aws4_request"
	fields, names := "\nx-amz-date:"+at, "host;x-amz-content-sha256;x-amz-date"
	if session != "" {
		fields, names = fields+"\nx-amz-security-token:"+session, names+";x-amz-security-token"
	}
	canonical := "GET\n" + r.URL.EscapedPath() + "\n\nhost:" + r.Host + "\nx-amz-content-sha256:" + hash("") + fields + "\n\n" + names + "\n" + hash("")
	key := sum(sum(sum(sum([]byte("AWS4"+secret), at[:8]), region), "s3"), "aws4_request")
	signature := hex.EncodeToString(sum(key, "AWS4-HMAC-SHA256\n"+at+"\n"+scope+"\n"+hash(canonical)))
	want := "AWS4-HMAC-SHA256 Credential=" + access + "/" + scope + ",SignedHeaders=" + names + ",Signature=" + signature
	return strings.ReplaceAll(r.Header.Get("Authorization"), ", ", ",") == want && r.Header.Get("X-Amz-Content-Sha256") == hash("")
}

// TestCheckProviders checks that members that a provider does not accept, or that it requires, are reported at
// their pointers.
func TestCheckProviders(t *testing.T) {
	query, search := &Query{Query: "SELECT 1 AS id"}, &Search{BaseDN: "dc=example,dc=com", Lists: []string{"memberOf"}}
	const web, postgres, ldaps = "https://a.example/x", "postgres://db.example/people", "ldaps://a.example"
	account := Credentials{Username: "u", Password: "p"}
	for _, c := range []struct {
		provider string
		config   Config
		secrets  Credentials
		want     string // empty: it is valid
	}{
		{SCIM, Config{URL: web}, Credentials{Token: "t"}, ""},
		{SCIM, Config{URL: web, Records: "$.x"}, Credentials{}, "/configuration/records"},
		{SCIM, Config{URL: web, Incremental: &Incremental{Parameter: "x"}}, Credentials{}, "/configuration/incremental/parameter"},
		{SCIM, Config{URL: web, SQL: query}, Credentials{}, "/configuration/sql"},
		{S3, Config{URL: web, Format: formatCSV}, account, ""},
		{S3, Config{URL: web, Headers: map[string]string{"a": "b"}}, account, "/configuration/headers"},
		{S3, Config{URL: web}, Credentials{Token: "t"}, "/credentials"},
		{S3, Config{URL: web}, Credentials{Username: "u"}, "/credentials/password"},
		{S3, Config{URL: web}, Credentials{Username: "u", Password: "p", SessionToken: "t"}, ""},
		{S3, Config{URL: web}, Credentials{Username: "u", Password: "p", SessionToken: "t\r\nA: b"}, "/credentials/session_token"},
		{S3, Config{URL: web}, Credentials{SessionToken: "t"}, "/credentials/username"},
		{SQL, Config{URL: postgres, SQL: query}, Credentials{Username: "u", Password: "p", SessionToken: "t"}, "/credentials/session_token"},
		{HTTPJSON, Config{URL: web}, Credentials{SessionToken: "t"}, "/credentials/session_token"},
		{SQL, Config{URL: postgres, SQL: query, Key: "id"}, account, ""},
		{SQL, Config{URL: "postgresql://[2001:db8::1]:6432/people?sslmode=verify-full", SQL: query}, account, ""},
		{SQL, Config{URL: postgres}, account, "/configuration/sql"},
		{SQL, Config{URL: postgres, SQL: query}, Credentials{}, "/credentials/username"},
		{SQL, Config{URL: postgres, SQL: &Query{Query: "DELETE FROM people"}}, account, "/configuration/sql/query"},
		{SQL, Config{URL: postgres, SQL: &Query{Query: "/* x */ -- y\n select 1"}}, account, ""},
		{SQL, Config{URL: postgres, SQL: &Query{Query: "SELECT '\x00'"}}, account, "/configuration/sql/query"},
		{SQL, Config{URL: postgres, SQL: query, Key: "id", Incremental: &Incremental{}}, account, "/configuration/sql/query"},
		{SQL, Config{URL: web, SQL: query}, account, "/configuration/url"},
		{SQL, Config{URL: "postgres://u:p@db.example/people", SQL: query}, account, "/configuration/url"},
		{SQL, Config{URL: "postgres://db.example", SQL: query}, account, "/configuration/url"},
		{SQL, Config{URL: "postgres://db.example:0/people", SQL: query}, account, "/configuration/url"},
		{SQL, Config{URL: "postgres://db.example:/people", SQL: query}, account, "/configuration/url"},
		{SQL, Config{URL: "postgres:///people?host=/var/run", SQL: query}, account, "/configuration/url"},
		{SQL, Config{URL: postgres + "?sslmode=require", SQL: query}, account, "/configuration/url"},
		{SQL, Config{URL: postgres + "?sslmode=disable&host=10.0.0.1", SQL: query}, account, "/configuration/url"},
		{LDAP, Config{URL: ldaps, LDAP: search}, account, ""},
		{LDAP, Config{URL: "ldap://a.example:3389/", LDAP: search, Key: "dn", Incremental: &Incremental{}}, Credentials{}, ""},
		{LDAP, Config{URL: ldaps}, account, "/configuration/ldap"},
		{LDAP, Config{URL: ldaps + "/dc=x", LDAP: search}, account, "/configuration/url"},
		{LDAP, Config{URL: "ldapi://x", LDAP: search}, account, "/configuration/url"},
		{LDAP, Config{URL: ldaps, LDAP: search}, Credentials{Username: "cn=x"}, "/credentials/password"},
		{LDAP, Config{URL: ldaps, LDAP: &Search{BaseDN: "x", Lists: []string{"a"}}}, account, "/configuration/ldap/base_dn"},
		{LDAP, Config{URL: ldaps, LDAP: &Search{BaseDN: "dc=x", Filter: "(a=b", Lists: []string{"a"}}}, account, "/configuration/ldap/filter"},
		{LDAP, Config{URL: ldaps, LDAP: &Search{BaseDN: "dc=x"}}, account, "/configuration/ldap/attributes"},
		{LDAP, Config{URL: ldaps, LDAP: &Search{BaseDN: "dc=x", Attributes: []string{"a"}, Lists: []string{"A"}}}, account, "/configuration/ldap/lists/0"},
		{LDAP, Config{URL: ldaps, LDAP: &Search{BaseDN: "dc=x", Attributes: []string{"DN"}}}, account, "/configuration/ldap/attributes/0"},
		{LDAP, Config{URL: ldaps, LDAP: &Search{BaseDN: "dc=x", Attributes: []string{"a b"}}}, account, "/configuration/ldap/attributes/0"},
		{LDAP, Config{URL: ldaps, LDAP: search, Key: "dn", Incremental: &Incremental{Parameter: "a)(b"}}, account, "/configuration/incremental/parameter"},
		{HTTPJSON, Config{URL: web, Key: "id", Incremental: &Incremental{}}, Credentials{}, "/configuration/incremental/parameter"},
		{HTTPJSON, Config{URL: web, LDAP: search}, Credentials{}, "/configuration/ldap"},
	} {
		wrong := Check(c.provider, c.config, c.secrets)
		switch {
		case c.want == "" && len(wrong) > 0:
			t.Errorf("Check(%s, %+v) = %v, want no offence", c.provider, c.config, wrong)
		case c.want != "" && (len(wrong) != 1 || wrong[0].Pointer != c.want):
			t.Errorf("Check(%s, %+v) = %v, want one offence at %s", c.provider, c.config, wrong, c.want)
		}
	}
}

// TestOrigins checks that a change of the host, or to a connection in clear, changes the origins.
func TestOrigins(t *testing.T) {
	of := func(url string) [3]string { return Origins(Config{URL: url}) }
	for _, other := range []string{"postgres://b.example/x", "postgres://a.example:6432/x", "postgres://a.example/x?sslmode=disable", "ldaps://a.example", "https://a.example/x"} {
		if of("postgres://a.example/x") == of(other) {
			t.Errorf("Origins(%s) is that of postgres://a.example/x, want another", other)
		}
	}
	if of("postgres://a.example/x") != of("postgres://A.example/y") {
		t.Error("Origins of another database of the same server differ, want the same")
	}
}
