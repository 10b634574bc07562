package kafka

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The limits on what a broker may say about its cluster. For each broker, replica and partition the
// library keeps objects of about a kilobyte, so a reply of a few megabytes would take gigabytes.
const (
	mostBrokers    = 1000
	mostPartitions = 2000
	// maxReply is the largest reply of a broker, in bytes. It has room for these limits.
	maxReply = 512 << 10
)

// errTooMany means that the metadata of a cluster exceed the limits.
var errTooMany = errors.New("kafka: the cluster names too many brokers or partitions")

// claims are the ids of brokers that a cluster has named to one producer. The library keeps what it
// has for an id, even if the cluster does not name it any more.
type claims struct {
	mu  sync.Mutex
	ids map[int32]bool
}

// add adds ids, and returns how many there are then. It adds none if that is more than mostBrokers.
func (c *claims) add(ids map[int32]bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = map[int32]bool{}
	}
	sum := len(c.ids)
	for id := range ids {
		if !c.ids[id] {
			sum++
		}
	}
	if sum <= mostBrokers {
		maps.Copy(c.ids, ids)
	}
	return sum
}

// kindMetadata is the key of requests for metadata.
const kindMetadata = 3

// checkedConn is a connection to a broker. It reads metadata completely and checks them before the
// library gets them. All other replies pass.
type checkedConn struct {
	net.Conn

	claims *claims

	mu    sync.Mutex
	asked map[int32]int16 // the versions of the requests for metadata, by correlation id

	ready []byte // what was read and may pass
	left  int    // how many bytes of the current reply may pass without a check
}

// Write implements net.Conn. The library writes each request at once.
func (c *checkedConn) Write(p []byte) (int, error) {
	if len(p) >= 12 && binary.BigEndian.Uint16(p[4:]) == kindMetadata {
		c.mu.Lock()
		if c.asked == nil {
			c.asked = map[int32]int16{}
		}
		c.asked[int32(binary.BigEndian.Uint32(p[8:]))] = int16(binary.BigEndian.Uint16(p[6:]))
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

// Read implements net.Conn.
func (c *checkedConn) Read(p []byte) (int, error) {
	if len(c.ready) == 0 && c.left == 0 {
		if err := c.begin(); err != nil {
			return 0, err
		}
	}
	if len(c.ready) > 0 {
		n := copy(p, c.ready)
		c.ready = c.ready[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// begin reads the beginning of a reply, or all of it if it has metadata.
func (c *checkedConn) begin() error {
	head := make([]byte, 8)
	if _, err := io.ReadFull(c.Conn, head[:4]); err != nil {
		return err
	}
	size := int32(binary.BigEndian.Uint32(head))
	if size < 4 || size > maxReply { // the library refuses such a reply
		c.ready, c.left = head[:4], int(max(size, 0))
		return nil
	}
	if _, err := io.ReadFull(c.Conn, head[4:]); err != nil {
		return err
	}
	version, metadata := c.answered(int32(binary.BigEndian.Uint32(head[4:])))
	if !metadata {
		c.ready, c.left = head, int(size)-4
		return nil
	}
	reply := append(make([]byte, 0, 4+size), head...)[:4+size]
	if _, err := io.ReadFull(c.Conn, reply[8:]); err != nil {
		return err
	}
	if err := c.claims.check(version, reply[8:]); err != nil {
		return err
	}
	c.ready = reply
	return nil
}

// answered returns the version of the request for metadata with this id, once; false: there is
// none.
func (c *checkedConn) answered(id int32) (version int16, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, is = c.asked[id]
	delete(c.asked, id)
	return version, is
}

// check returns errTooMany if metadata exceed the limits, together with those before. What it cannot
// read, the library cannot read either.
func (c *claims) check(version int16, body []byte) error {
	m := kmsg.MetadataResponse{Version: version}
	if m.IsFlexible() {
		header := kbin.Reader{Src: body}
		kmsg.SkipTags(&header)
		body = header.Src
	}
	if m.ReadFrom(body) != nil {
		return nil
	}
	partitions, ids := 0, map[int32]bool{}
	for _, b := range m.Brokers {
		ids[b.NodeID] = true
	}
	for _, t := range m.Topics {
		partitions += len(t.Partitions)
		for _, p := range t.Partitions {
			ids[p.Leader] = true
			for _, id := range p.Replicas {
				ids[id] = true
			}
		}
	}
	if len(m.Brokers) > mostBrokers || partitions > mostPartitions || len(ids) > mostBrokers || c.add(ids) > mostBrokers {
		return errTooMany
	}
	return nil
}
