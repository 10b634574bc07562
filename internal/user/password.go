package user

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"
)

// MaxPassword limits a password, in bytes. Longer ones are refused before hashing.
const MaxPassword = 1024

// Cost is the cost of argon2id (RFC 9106): passes, memory in KiB, and lanes.
type Cost struct {
	Passes    uint32
	MemoryKiB uint32
	Lanes     uint8
}

// DefaultCost is t=2, 19 MiB, p=1: about 24 ms on the reference machine.
func DefaultCost() Cost { return Cost{Passes: 2, MemoryKiB: 19 * 1024, Lanes: 1} }

// maxCostKiB and maxPasses limit the cost of a stored hash, in case a row was forged.
const maxCostKiB, maxPasses = 256 * 1024, 16

const (
	saltBytes = 16
	hashBytes = 32
)

// Hasher hashes passwords with argon2id. It limits how many hashes run at once, because each takes
// a core and much memory. Create it with NewHasher.
type Hasher struct {
	cost  Cost
	rand  io.Reader
	slots hashSlots
	dummy string
}

// NewHasher returns a Hasher that runs at most parallel hashes at once (0: four) and reads salts
// from random.
func NewHasher(cost Cost, parallel int, random io.Reader) (*Hasher, error) {
	if parallel <= 0 {
		parallel = 4
	}
	h := &Hasher{cost: cost, rand: random, slots: hashSlots{free: parallel}}
	dummy, err := h.Hash(context.Background(), "no password has this hash")
	h.dummy = dummy
	return h, err
}

// prepare normalises a password, so that composed and decomposed characters are equal (RFC 8265
// section 4.2, OpaqueString).
func prepare(password string) []byte { return []byte(norm.NFC.String(password)) }

// Hash returns the PHC string of a password with a new salt. It waits for its turn.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	turn, err := h.AcquireSlot(ctx, true)
	if err != nil {
		return "", err
	}
	defer turn.Release()
	return h.hash(password)
}

func (h *Hasher) hash(password string) (string, error) {
	salt := make([]byte, saltBytes)
	if _, err := io.ReadFull(h.rand, salt); err != nil {
		return "", err
	}
	sum := run(password, salt, h.cost)
	enc := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		h.cost.MemoryKiB, h.cost.Passes, h.cost.Lanes, enc.EncodeToString(salt), enc.EncodeToString(sum)), nil
}

// verify reports whether password has this hash. An empty or unreadable hash never matches, but
// takes as long as a real one, so that response times do not reveal which accounts exist. stale is
// true if the hash has another cost and should be renewed.
func (h *Hasher) verify(hash, password string) (ok, stale bool) {
	cost, salt, want, readable := parseHash(hash)
	if !readable || len(password) > MaxPassword {
		cost, salt, want, _ = parseHash(h.dummy)
		readable = false
	}
	if len(password) > MaxPassword {
		password = password[:MaxPassword]
	}
	got := run(password, salt, cost)
	same := subtle.ConstantTimeCompare(got, want) == 1
	return same && readable, cost != h.cost
}

func run(password string, salt []byte, c Cost) []byte {
	return argon2.IDKey(prepare(password), salt, c.Passes, c.MemoryKiB, c.Lanes, hashBytes)
}

// parseHash parses a PHC string of argon2id.
func parseHash(s string) (c Cost, salt, sum []byte, ok bool) {
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return c, nil, nil, false
	}
	var m, t, p uint64
	for kv := range strings.SplitSeq(parts[3], ",") {
		name, value, _ := strings.Cut(kv, "=")
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return c, nil, nil, false
		}
		switch name {
		case "m":
			m = n
		case "t":
			t = n
		case "p":
			p = n
		}
	}
	if m == 0 || m > maxCostKiB || t == 0 || t > maxPasses || p == 0 || p > 16 {
		return c, nil, nil, false
	}
	var err error
	if salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil || len(salt) < 8 {
		return c, nil, nil, false
	}
	if sum, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil || len(sum) != hashBytes {
		return c, nil, nil, false
	}
	return Cost{Passes: uint32(t), MemoryKiB: uint32(m), Lanes: uint8(p)}, salt, sum, true
}
