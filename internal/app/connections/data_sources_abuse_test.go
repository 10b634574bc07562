package connections_test

import (
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// hostileDirectory answers the first request of each connection with an LDAP message of its own.
func hostileDirectory(t *testing.T, message []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				request := make([]byte, 1024)
				if _, err := conn.Read(request); err != nil {
					return
				}
				if _, err := conn.Write(message); err == nil {
					_, _ = conn.Read(request) // until the other side has seen enough
				}
			})
		}
	})
	return "ldap://" + l.Addr().String()
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
		var all sync.WaitGroup
		for name, answer := range answers {
			address := hostileDirectory(t, answer)
			for range 2 {
				all.Go(func() {
					res := s.Admin.Do(t, "POST", "/pip/connections/test", body{"name": "people", "provider": "ldap", "configuration": body{
						"url": address, "key": "uid", "ldap": body{"base_dn": "ou=people", "attributes": []string{"uid"}},
					}})
					if res.Status != 200 || res.Get("success") != false || !strings.Contains(string(res.Body), "StartTLS") {
						t.Errorf("%s: %d %s", name, res.Status, res.Body)
					}
				})
			}
		}
		all.Wait()
		s.Grew(t, before, 300<<20)
	})
}
