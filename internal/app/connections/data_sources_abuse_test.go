package connections_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// hostileDirectory answers the first request of each connection with an LDAP message of its own.
func hostileDirectory(t *testing.T, message []byte) string {
	t.Helper()
	return "ldap://" + freeport.Accept(t, func(conn net.Conn) {
		request := make([]byte, 1024)
		if _, err := conn.Read(request); err != nil {
			return
		}
		if _, err := conn.Write(message); err == nil {
			_, _ = conn.Read(request) // until the other side has seen enough
		}
	})
}

// extended is an LDAP message with an extended response of such a content.
func extended(content string) []byte {
	element := func(tag byte, content []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{tag, 0x84}, uint32(len(content))), content...)
	}
	return element(0x30, append([]byte("\x02\x01\x01"), element(0x78, []byte(content))...))
}

// TestDirectoryOfManyElements: a directory that answers with as many elements as fit into the
// bytes that are read, before TLS has shown whose it is, does not make the server large.
func TestDirectoryOfManyElements(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		answers := map[string][]byte{
			"empty values": extended(strings.Repeat("\x05\x00", 4_100_000)),
			"nested":       extended(strings.Repeat("\x30\x80", 4_100_000)),
			"empty sets":   extended(strings.Repeat("\x30\x00", 4_100_000)),
		}
		before := s.Resident(t)
		for name, answer := range answers {
			res := s.Admin.Do(t, "POST", "/pip/connections/test", body{"name": "people", "provider": "ldap", "configuration": body{
				"url": hostileDirectory(t, answer), "key": "uid", "ldap": body{"base_dn": "ou=people", "attributes": []string{"uid"}},
			}}).Want(200)
			if res.Get("success") != false || !strings.Contains(string(res.Body), "StartTLS") {
				t.Errorf("%s: %s", name, res.Body)
			}
		}
		s.CheckGrowth(t, before, 300<<20)
	})
}

// TestTestsAtOnce: a tenant tests two sources at once and all tenants four, however slow the
// sources are; whoever comes then is told to wait, and nobody's turn is lost.
func TestTestsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		d := newDirectory(t, map[string]int{"ada": 7})
		hold := make(chan struct{})
		d.set(func() { d.hold = hold })
		var tenants []*apptest.Client
		for _, name := range []string{"One", "Two", "Three"} {
			made := s.Admin.Do(t, "POST", "/tenants", body{"name": name}).Want(201)
			id, _ := made.Get("id").(string)
			tenants = append(tenants, s.Admin.With("X-Tenant-ID", id))
		}
		try := func(c *apptest.Client) *apptest.Response {
			return c.Do(t, "POST", "/pip/connections/test", d.draft("people"))
		}
		var all sync.WaitGroup
		for _, c := range tenants[:2] {
			for range 2 {
				all.Go(func() {
					if res := try(c); res.Status != 200 || res.Get("success") != true {
						t.Errorf("a test in its turn: %d %s", res.Status, res.Body)
					}
				})
			}
		}
		apptest.Eventually(t, time.Minute, func() error {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.calls != 4 {
				return fmt.Errorf("%d of 4 tests have reached the source", d.calls)
			}
			return nil
		})
		if res := try(tenants[0]); res.Status != 429 || res.Get("error") != "rate_limit_exceeded" || res.Header.Get("Retry-After") == "" {
			t.Errorf("a third test of a tenant: %d %s", res.Status, res.Body)
		}
		if res := try(tenants[2]); res.Status != 503 || res.Get("error") != "busy" || res.Header.Get("Retry-After") == "" {
			t.Errorf("a fifth test: %d %s", res.Status, res.Body)
		}
		close(hold)
		all.Wait()
		for _, c := range tenants {
			if res := try(c).Want(200); res.Get("success") != true {
				t.Errorf("a test afterwards: %s", res.Body)
			}
		}
	})
}

// TestManyLargeSources: all data sources of a tenant that answer at the same moment with as much as
// is read do not make the server large, and each of them is synced. A small source does not wait.
func TestManyLargeSources(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		const sources = 20
		large := `{"few":[{"id":1}],"many":[` + strings.TrimSuffix(strings.Repeat(`{"a":"b","c":"d","e":[0,0]},`, 48_000), ",") + `]` + strings.Repeat(" ", 6<<20) + `}`
		var arrived sync.WaitGroup
		arrived.Add(sources)
		first := make(chan struct{}, sources)
		answers := apptest.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/small" {
				fmt.Fprint(w, `{"few":[{"id":1}]}`)
				return
			}
			select {
			case first <- struct{}{}:
				arrived.Done()
			default: // again
			}
			arrived.Wait()
			fmt.Fprint(w, large)
		})
		before := s.Resident(t)
		draft := func(name, path string) body {
			return body{"name": name, "provider": "http_json", "sync_frequency": "manual", "configuration": body{"url": "http://" + answers.Addr + path, "records": "$.few[*]"}}
		}
		var ids []int64
		for i := range sources {
			ids = append(ids, s.Admin.Do(t, "POST", "/pip/connections", draft(fmt.Sprint("large", i), "/large")).Want(201).ID())
		}
		for _, id := range append(ids, s.Admin.Do(t, "POST", "/pip/connections", draft("small", "/small")).Want(201).ID()) {
			s.Admin.Do(t, "POST", fmt.Sprintf("/pip/connections/%d/trigger-sync", id), nil).Want(200, 202)
		}
		apptest.Eventually(t, 3*time.Minute, func() error {
			list, _ := s.Admin.Do(t, "GET", "/pip/connections?limit=100", nil).Want(200).Get("connections").([]any)
			synced := 0
			for _, c := range list {
				if c.(map[string]any)["records_synced"] == 1.0 {
					synced++
				}
			}
			if synced != sources+1 {
				return fmt.Errorf("%d of %d sources are synced", synced, sources+1)
			}
			return nil
		})
		s.CheckGrowth(t, before, 500<<20)
	})
}
