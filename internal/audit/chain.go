package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
	"time"
)

// chain is the state of one hash chain, a row of audit_chains.
type chain struct {
	Name     string `db:"name"`
	FirstPos int64  `db:"first_pos"`
	FirstSeq int64  `db:"first_seq"`
	Base     string `db:"base"`
	LastPos  int64  `db:"last_pos"`
	LastSeq  int64  `db:"last_seq"`
	Head     string `db:"head"`
}

const eventsChain = "events"

func newChain(name string) chain { return chain{Name: name, FirstPos: 1, FirstSeq: 1} }

// add puts one row at the end of the chain.
func (c *chain) add(seq int64, hash string) {
	c.LastPos++
	c.LastSeq = seq
	c.Head = hash
}

// decisionChain names the chain of a level.
func decisionChain(l Level) string { return "decisions." + string(l) }

// digest hashes the fields of a row, each with its length in front, after the
// hash of the row before: H(prev | len f1 | f1 | len f2 ...).
type digest struct {
	h   hash.Hash
	buf [8]byte
}

func newDigest(prev string) *digest {
	d := &digest{h: sha256.New()}
	d.text(prev)
	return d
}

func (d *digest) text(s string) {
	binary.BigEndian.PutUint64(d.buf[:], uint64(len(s)))
	d.h.Write(d.buf[:])
	d.h.Write([]byte(s))
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func (d *digest) number(n int64) { d.text(itoa(n)) }

func (d *digest) time(t time.Time) { d.number(t.UnixMicro()) }

func (d *digest) sum() string { return hex.EncodeToString(d.h.Sum(nil)) }

// row is one stored decision.
type row struct {
	Seq          int64     `db:"seq"`
	DecisionID   string    `db:"decision_id"`
	At           time.Time `db:"at"`
	LoggedAt     time.Time `db:"logged_at"`
	Level        Level     `db:"level"`
	Pos          int64     `db:"pos"`
	Environment  string    `db:"environment"`
	Decision     string    `db:"decision"`
	UserID       string    `db:"user_id"`
	PolicyID     int64     `db:"policy_id"`
	ResourceKey  string    `db:"resource_key"`
	BouncerID    int64     `db:"bouncer_id"`
	IPAddress    string    `db:"ip_address"`
	EvaluationUS int64     `db:"evaluation_us"`
	Record       string    `db:"record"`
	Hash         string    `db:"hash"`

	// input is kept for replay beside the row; "" is none.
	input string
	// tally is what the row adds to the counters while it is being stored.
	tally Tally
	// masked is whether the decision masks; the roll-ups count it.
	masked bool
}

// seal computes the hash of the row, standing after prev.
func (r *row) seal(prev string) string {
	d := newDigest(prev)
	d.number(r.Seq)
	d.text(r.DecisionID)
	d.time(r.At)
	d.time(r.LoggedAt)
	d.text(string(r.Level))
	d.number(r.Pos)
	d.text(r.Environment)
	d.text(r.Decision)
	d.text(r.UserID)
	d.number(r.PolicyID)
	d.text(r.ResourceKey)
	d.number(r.BouncerID)
	d.text(r.IPAddress)
	d.number(r.EvaluationUS)
	d.text(r.Record)
	return d.sum()
}

// eventRow is one stored administrative entry, with its texts as stored.
type eventRow struct {
	Seq          int64     `db:"seq"`
	At           time.Time `db:"at"`
	Type         string    `db:"type"`
	Object       string    `db:"object"`
	ObjectID     string    `db:"object_id"`
	ObjectName   string    `db:"object_name"`
	Environment  string    `db:"environment"`
	ActorKind    string    `db:"actor_kind"`
	ActorID      string    `db:"actor_id"`
	ActorName    string    `db:"actor_name"`
	IPAddress    string    `db:"ip_address"`
	RequestID    string    `db:"request_id"`
	Changes      string    `db:"changes"`
	EventContext string    `db:"event_context"`
	Hash         string    `db:"hash"`
}

// seal computes the hash of the entry, standing after prev.
func (r *eventRow) seal(prev string) string {
	d := newDigest(prev)
	d.number(r.Seq)
	d.time(r.At)
	for _, s := range []string{
		r.Type, r.Object, r.ObjectID, r.ObjectName, r.Environment, r.ActorKind, r.ActorID,
		r.ActorName, r.IPAddress, r.RequestID, r.Changes, r.EventContext,
	} {
		d.text(s)
	}
	return d.sum()
}
