// Package dnstest is a DNS server for tests: it answers over UDP on a port of its own.
package dnstest

import (
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Server answers for all names, with the records that a test gives them.
type Server struct {
	// Addr is its host:port.
	Addr string

	mu     sync.Mutex
	cname  map[string]string
	txt    map[string][]string
	broken bool
	asked  int
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: conn.LocalAddr().String(), cname: map[string]string{}, txt: map[string][]string{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer, ok := s.answer(buf[:n]); ok {
				_, _ = conn.WriteTo(answer, from) // the client asks again
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return s
}

// CNAME makes a name lead to another; an empty one removes the record.
func (s *Server) CNAME(name, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cname[fold(name)] = fold(to); to == "" {
		delete(s.cname, fold(name))
	}
}

// TXT gives a name its texts; none remove the records.
func (s *Server) TXT(name string, texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.txt[fold(name)] = texts; len(texts) == 0 {
		delete(s.txt, fold(name))
	}
}

// Break makes the server fail each question, or answer again.
func (s *Server) Break(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

// Asked is how many questions came so far.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func fold(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// answer answers one message; false is for what is no question.
func (s *Server) answer(message []byte) ([]byte, bool) {
	var p dnsmessage.Parser
	head, err := p.Start(message)
	if err != nil || head.Response {
		return nil, false
	}
	q, err := p.Question()
	if err != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	name := fold(q.Name.String())
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: head.ID, Response: true, Authoritative: true, RecursionDesired: head.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
	to, aliased := s.cname[name]
	texts, texted := s.txt[name]
	switch {
	case s.broken:
		reply.RCode = dnsmessage.RCodeServerFailure
	case aliased:
		target, err := dnsmessage.NewName(to + ".")
		if err != nil {
			return nil, false
		}
		reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.CNAMEResource{CNAME: target}})
		if q.Type == dnsmessage.TypeA {
			header.Name = target
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}})
		}
	case texted && q.Type == dnsmessage.TypeTXT:
		for _, text := range texts {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.TXTResource{TXT: []string{text}}})
		}
	case !texted:
		reply.RCode = dnsmessage.RCodeNameError
	}
	out, err := reply.Pack()
	return out, err == nil
}
