package source

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jimlambrt/gldap"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// ldapServer is a directory of people that answers in pages.
type ldapServer struct {
	mu       sync.Mutex
	people   []map[string][]string // uid has one value
	searches []*gldap.SearchMessage
	bare     bool // whether it ignores the paging control
}

// newLDAP returns a directory of n people.
func newLDAP(t *testing.T, n int) *ldapServer {
	d := &ldapServer{}
	for i := range n {
		d.people = append(d.people, map[string][]string{
			"uid": {fmt.Sprintf("u%04d", i)}, "mail": {fmt.Sprintf("u%d@example.com", i), "second@example.com"},
			"memberOf": {"cn=staff", fmt.Sprintf("cn=team%d", i%7)}, "objectGUID": {"\xff\x00\xfe" + strconv.Itoa(i)},
		})
	}
	return d
}

// open starts the directory, with TLS from the first byte or by StartTLS, and returns its address.
func (d *ldapServer) open(t *testing.T, settings *tls.Config, implicit bool) string {
	s, err := gldap.NewServer(gldap.WithLogger(hclog.NewNullLogger()))
	errtest.Must(t, err)
	mux, err := gldap.NewMux()
	errtest.Must(t, err)
	for _, err := range []error{
		mux.Bind(d.bind),
		mux.Search(d.search),
		mux.ExtendedOperation(func(w *gldap.ResponseWriter, r *gldap.Request) {
			res := r.NewExtendedResponse(gldap.WithResponseCode(gldap.ResultSuccess))
			res.SetResponseName(gldap.ExtendedOperationStartTLS)
			_ = w.Write(res)
			_ = r.StartTLS(settings)
		}, gldap.ExtendedOperationStartTLS),
		s.Router(mux),
	} {
		errtest.Must(t, err)
	}
	var options []gldap.Option
	scheme := "ldap://"
	if implicit {
		options, scheme = append(options, gldap.WithTLSConfig(settings)), "ldaps://"
	}
	address := freeport.Addr(t)
	var done sync.WaitGroup
	done.Go(func() { _ = s.Run(address, options...) })
	t.Cleanup(func() { _ = s.Stop(); done.Wait() })
	timetest.WaitFor(t, "the directory to listen", s.Ready)
	return scheme + address
}

func (d *ldapServer) bind(w *gldap.ResponseWriter, r *gldap.Request) {
	res := r.NewBindResponse(gldap.WithResponseCode(gldap.ResultInvalidCredentials), gldap.WithDiagnosticMessage("inner-words-of-the-source"))
	if m, err := r.GetSimpleBindMessage(); err == nil && m.UserName == "cn=reader" && m.Password == "word" {
		res.SetResultCode(gldap.ResultSuccess)
	}
	_ = w.Write(res)
}

func (d *ldapServer) search(w *gldap.ResponseWriter, r *gldap.Request) {
	res := r.NewSearchDoneResponse(gldap.WithResponseCode(gldap.ResultNoSuchObject))
	defer func() { _ = w.Write(res) }()
	m, err := r.GetSearchMessage()
	if err != nil || m.BaseDN != "ou=people" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.searches = append(d.searches, m)
	from, to := 0, len(d.people)
	for _, c := range m.Controls {
		if paging, ok := c.(*gldap.ControlPaging); ok && !d.bare {
			from, _ = strconv.Atoi(string(paging.Cookie))
			to = min(len(d.people), from+int(paging.PagingSize))
			answer, err := gldap.NewControlPaging(0)
			if err != nil {
				return
			}
			if to < len(d.people) {
				answer.SetCookie([]byte(strconv.Itoa(to)))
			}
			res.SetControls(answer)
		}
	}
	for _, p := range d.people[from:to] {
		_ = w.Write(r.NewSearchResponseEntry("uid="+p["uid"][0]+",ou=people", gldap.WithAttributes(p)))
	}
	res.SetResultCode(gldap.ResultSuccess)
}

// ldapOrder returns the order to fetch the people of a directory.
func ldapOrder(address string) Order {
	return Order{
		Provider: LDAP, Credentials: Credentials{Username: "cn=reader", Password: "word"},
		Config: Config{URL: address, Key: "uid", LDAP: &Search{BaseDN: "ou=people", Filter: "(objectClass=person)", Attributes: []string{"uid", "Mail", "objectGUID", "none"}, Lists: []string{"memberOf", "nothing"}}},
	}
}

// TestLDAP checks that all pages are read, over TLS and over StartTLS. Attributes are texts, and lists are
// arrays of any length.
func TestLDAP(t *testing.T) {
	settings, roots := outboundtest.Certificate(t)
	for _, implicit := range []bool{true, false} {
		t.Run(fmt.Sprintf("implicit=%v", implicit), func(t *testing.T) {
			d, f := newLDAP(t, 1203), fetcherFor(t, roots)
			res := f.get(t, ldapOrder(d.open(t, settings, implicit)))
			want := `{"dn":"uid=u1202,ou=people","uid":"u1202","Mail":"u1202@example.com","objectGUID":"/wD+MTIwMg==","memberOf":["cn=staff","cn=team5"],"nothing":[]}`
			if got := string(res.Data.Get("u1202").AppendJSON(nil)); got != want || res.Records != 1203 || len(d.searches) != 3 {
				t.Errorf("%d records in %d pages, the last is %s, want 1203 in 3 and %s", res.Records, len(d.searches), got, want)
			}
		})
	}
}

// TestLDAPPages checks that a sample reads one page, and a directory without paging is read in one.
func TestLDAPPages(t *testing.T) {
	settings, roots := outboundtest.Certificate(t)
	d, f := newLDAP(t, 700), fetcherFor(t, roots)
	o := ldapOrder(d.open(t, settings, true))
	o.Sample = true
	if res := f.get(t, o); len(res.Sample) != 5 || len(d.searches) != 1 {
		t.Errorf("the sample is %v in %d pages, want 5 in one", res.Sample, len(d.searches))
	}
	d.bare, o.Sample = true, false
	if res := f.get(t, o); res.Records != 700 {
		t.Errorf("%d records without pages, want 700", res.Records)
	}
}

// TestLDAPChanges checks that with incremental, the search finds only entries that changed since the last one.
func TestLDAPChanges(t *testing.T) {
	settings, roots := outboundtest.Certificate(t)
	d, f := newLDAP(t, 2), fetcherFor(t, roots)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	f.Now = func() time.Time { return at }
	o := ldapOrder(d.open(t, settings, true))
	o.Config.Incremental = &Incremental{Parameter: "whenChanged"}
	first := f.get(t, o)
	o.State, o.Previous = first.State, first.Data
	d.people = d.people[:1]
	d.people[0]["mail"] = []string{"new@example.com"}
	second := f.get(t, o)
	if got := d.searches[1].Filter; got != "(&(objectClass=person)(whenChanged>=20260304050107Z))" {
		t.Errorf("the filter is %s, want only entries that changed since the last fetch", got)
	}
	if mail, _ := second.Data.Get("u0000").Get("Mail").Str(); second.Records != 2 || mail != "new@example.com" {
		t.Errorf("the data after a change is %s, want 2 people and the new mail", second.Data.AppendJSON(nil))
	}
}

// TestLDAPFailures checks that failures are reported in gatehouse's own words.
func TestLDAPFailures(t *testing.T) {
	settings, roots := outboundtest.Certificate(t)
	d, f := newLDAP(t, 3), fetcherFor(t, roots)
	f.Limit = 20 * time.Second
	address := d.open(t, settings, true)
	o := ldapOrder(address)
	o.Credentials.Password = "wrong"
	f.wantFailure(t, o, "error 49 (Invalid Credentials)")
	o = ldapOrder(address)
	o.Config.LDAP.BaseDN = "ou=none"
	f.wantFailure(t, o, "error 32 (No Such Object)")
	fetcher(t).wantFailure(t, ldapOrder(address), "the certificate of the directory is not valid")
	fetcher(t).wantFailure(t, ldapOrder("ldap"+address[len("ldaps"):]), "StartTLS")
	f.wantFailure(t, ldapOrder("ldaps://10.0.0.1"), "could not be reached")
	for name, answer := range map[string]string{
		"web server": "HTTP/1.1 400 Bad Request\r\n\r\n",
		"huge":       "\x30\x84\x7f\xff\xff\xff\x02\x01\x01",
		"nonsense":   "\x30\x05\x02\x01\x01\x78\x00",
	} {
		t.Run(name, func(t *testing.T) { f.wantFailure(t, ldapOrder("ldap://"+serveBytes(t, answer)), "") })
	}
	d.people[1]["memberOf;range=0-1499"] = []string{"cn=a"}
	delete(d.people[1], "memberOf")
	f.wantFailure(t, ldapOrder(address), "only a part of the values of memberOf")
}

// TestFraming checks that the elements of messages are counted across reads of any size, and encodings that
// LDAP does not use are refused.
func TestFraming(t *testing.T) {
	long := func(tag string, content string) string {
		return tag + string(binary.BigEndian.AppendUint32([]byte{0x84}, uint32(len(content)))) + content
	}
	whole := "\x30\x0c\x02\x01\x01\x65\x07\x0a\x01\x00\x04\x00\x04\x00"
	many := long("\x30", "\x02\x01\x01"+long("\x64", strings.Repeat("\x04\x00", maxElements)))
	for name, c := range map[string]struct {
		stream string
		good   bool
	}{
		"a message":           {whole, true},
		"many messages":       {strings.Repeat(whole, 1000), true},
		"a large value":       {long("\x30", long("\x04", strings.Repeat("\x30\x80", 100_000))), true},
		"many elements":       {long("\x30", strings.Repeat("\x04\x00", maxElements-1)), true},
		"too many elements":   {many, false},
		"too many in all":     {strings.Repeat(whole, maxElementsInAll/6+1), false},
		"empty messages":      {strings.Repeat("\x30\x00", maxElementsInAll+1), false},
		"indefinite":          {"\x30\x80\x02\x01\x01\x00\x00", false},
		"a large tag":         {"\x30\x05\x1f\x81\x01\x01\x00", false},
		"a length of 5 bytes": {"\x30\x85\x00\x00\x00\x00\x01\x00", false},
		"longer than allowed": {"\x30\x84\x7f\xff\xff\xff", false},
		"beyond its message":  {"\x30\x03\x04\x02\x00\x00", false},
		"no message":          {"\x04\x01\x00", false},
	} {
		for _, size := range []int{1 << 20, 7, 1} {
			near, far := net.Pipe()
			go func() {
				for rest := []byte(c.stream); len(rest) > 0; rest = rest[min(size, len(rest)):] {
					if _, err := far.Write(rest[:min(size, len(rest))]); err != nil {
						return
					}
				}
				_ = far.Close()
			}()
			got, err := io.ReadAll(&framed{Conn: near})
			_ = near.Close()
			if c.good && (err != nil || string(got) != c.stream) || !c.good && !errors.Is(err, errFraming) {
				t.Errorf("%s in pieces of %d: %d bytes, %v, want it read: %v", name, size, len(got), err, c.good)
			}
			if len(c.stream) > 1<<20 {
				break
			}
		}
	}
}
