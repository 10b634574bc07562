// Package digest hashes the fields of a record in a hash chain, and shortens texts that are too
// long for an index.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
	"time"
	"unicode/utf8"
)

// Digest hashes the fields of a row, each with its length before it. The first field is the hash
// of the previous row: H(len prev | prev | len f1 | f1 | ...), where H is SHA-256 and each length
// has 64 bits, big-endian.
type Digest struct {
	h   hash.Hash
	buf [8]byte
}

// New begins the digest of the row that follows the row with the hash prev.
func New(prev string) *Digest {
	d := &Digest{h: sha256.New()}
	d.Text(prev)
	return d
}

// Text adds a text.
func (d *Digest) Text(s string) {
	binary.BigEndian.PutUint64(d.buf[:], uint64(len(s)))
	d.h.Write(d.buf[:])
	d.h.Write([]byte(s))
}

// Number adds a number, as its decimal text.
func (d *Digest) Number(n int64) { d.Text(strconv.FormatInt(n, 10)) }

// Time adds a time, as microseconds since 1970.
func (d *Digest) Time(t time.Time) { d.Number(t.UnixMicro()) }

// Sum returns the hash in hexadecimal.
func (d *Digest) Sum() string { return hex.EncodeToString(d.h.Sum(nil)) }

// maxKey is the longest text, in bytes, that is indexed unchanged.
const maxKey = 120

// Key returns a text that is short enough for an index. A longer text keeps its beginning and ends
// with its hash.
func Key(s string) string {
	if len(s) <= maxKey {
		return s
	}
	cut := maxKey - 33
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	sum := sha256.Sum256([]byte(s))
	return s[:cut] + "#" + hex.EncodeToString(sum[:16])
}
