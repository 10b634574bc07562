package framing

import (
	"container/list"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limit limits the connections of clients to a process. Without it, a client could use up the file
// descriptors that stores and logs need.
//
// At the limit, a new connection displaces the oldest one of the address that has most connections.
// A new connection from that address itself is closed. So one client cannot lock out the others.
type Limit struct {
	most int // 0: no bound
	now  func() time.Time
	log  *slog.Logger

	mu    sync.Mutex
	open  int
	peers map[netip.Prefix]*list.List // of *counted, the oldest first

	warning sync.Mutex
	closed  int       // connections since the last warning
	warned  time.Time // when that was
}

// warnEvery is how often a Limit warns.
const warnEvery = time.Minute

// NewLimit returns a limit of most connections; 0 means no limit. It logs a warning when it closes
// connections, at most once a minute.
func NewLimit(most int, now func() time.Time, log *slog.Logger) *Limit {
	return &Limit{most: most, now: now, log: log, peers: map[netip.Prefix]*list.List{}}
}

// warn counts a closed connection, and logs a warning unless there was one within warnEvery.
func (l *Limit) warn() {
	now := l.now()
	l.warning.Lock()
	defer l.warning.Unlock()
	l.closed++
	if now.Sub(l.warned) < warnEvery {
		return
	}
	l.log.Warn("too many client connections: some were closed", "limit", l.most, "closed", l.closed)
	l.closed, l.warned = 0, now
}

// counted is a connection that a Limit counts.
type counted struct {
	*net.TCPConn
	limit *Limit
	peer  netip.Prefix
	place *list.Element // nil: it is no longer counted
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.limit.mu.Lock()
	c.limit.forget(c)
	c.limit.mu.Unlock()
	return c.TCPConn.Close()
}

// admit counts a new connection. It returns nil if there is no room for it.
func (l *Limit) admit(conn *net.TCPConn) net.Conn {
	c := &counted{TCPConn: conn, limit: l, peer: peerOf(conn)}
	if l.most <= 0 {
		return conn
	}
	l.mu.Lock()
	displaced, ok := l.makeRoom(c.peer)
	if ok {
		l.add(c)
	}
	l.mu.Unlock()
	if displaced != nil || !ok {
		l.warn()
	}
	if displaced != nil {
		_ = displaced.TCPConn.Close() // the server gets an error from its next read
	}
	if !ok {
		return nil
	}
	return c
}

// makeRoom makes room for a connection of a peer. It returns the connection to close, if any, and
// false if there is no room. The caller holds mu.
func (l *Limit) makeRoom(peer netip.Prefix) (displaced *counted, ok bool) {
	if l.open < l.most {
		return nil, true
	}
	var biggest *list.List
	for _, conns := range l.peers {
		if biggest == nil || conns.Len() > biggest.Len() {
			biggest = conns
		}
	}
	if mine := l.peers[peer]; mine != nil && mine.Len()+1 >= biggest.Len() {
		return nil, false
	}
	displaced = biggest.Front().Value.(*counted)
	l.forget(displaced)
	return displaced, true
}

func (l *Limit) add(c *counted) {
	conns := l.peers[c.peer]
	if conns == nil {
		conns = list.New()
		l.peers[c.peer] = conns
	}
	c.place = conns.PushBack(c)
	l.open++
}

// forget stops counting a connection. The caller holds mu.
func (l *Limit) forget(c *counted) {
	if c.place == nil {
		return
	}
	conns := l.peers[c.peer]
	conns.Remove(c.place)
	c.place = nil
	l.open--
	if conns.Len() == 0 {
		delete(l.peers, c.peer)
	}
}

// peerOf returns the address of a client or, for IPv6, its /64 network, because one client may use
// all addresses of it.
func peerOf(c net.Conn) netip.Prefix {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := at.AddrPort().Addr().Unmap()
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.WithZone("").Prefix(bits) // the zero prefix for an unknown address
	return p
}

// limited is a listener whose connections a Limit counts.
type limited struct {
	*net.TCPListener
	limit *Limit
}

// Accept implements net.Listener.
func (l limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if c := l.limit.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close()
	}
}
