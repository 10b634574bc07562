package audit

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/audit/digest"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
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

// EventsChain is the name of the administrative log's chain.
const EventsChain = "events"

func newChain(name string) chain { return chain{Name: name, FirstPos: 1, FirstSeq: 1} }

// add appends one row to the chain.
func (c *chain) add(seq int64, hash string) {
	c.LastPos++
	c.LastSeq = seq
	c.Head = hash
}

// DecisionsChain returns the name of a level's chain.
func DecisionsChain(l Level) string { return "decisions." + string(l) }

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
	// CallerID is the key of the id that the caller gave to the decision. It is nil if there is
	// none, or if the row is older than the column.
	CallerID *string `db:"caller_id"`

	// input is stored for replay outside the row; "" means none.
	input string
	// tally is what the row adds to the counters when it is stored.
	tally Tally
	// masked reports whether the decision masks; the roll-ups count it.
	masked bool
	// agent is the AI agent that asked; nil if none did.
	agent *actor.AgentUse
}

// hashAfter returns the hash of the row; prev is the hash of the row before it.
func (r *row) hashAfter(prev string) string {
	d := digest.New(prev)
	d.Number(r.Seq)
	d.Text(r.DecisionID)
	d.Time(r.At)
	d.Time(r.LoggedAt)
	d.Text(string(r.Level))
	d.Number(r.Pos)
	d.Text(r.Environment)
	d.Text(r.Decision)
	d.Text(r.UserID)
	d.Number(r.PolicyID)
	d.Text(r.ResourceKey)
	d.Number(r.BouncerID)
	d.Text(r.IPAddress)
	d.Number(r.EvaluationUS)
	d.Text(r.Record)
	if r.CallerID != nil { // without it, the hash is the same as before the column existed
		d.Text(*r.CallerID)
	}
	return d.Sum()
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

// hashAfter returns the hash of the entry; prev is the hash of the entry before it.
func (r *eventRow) hashAfter(prev string) string {
	d := digest.New(prev)
	d.Number(r.Seq)
	d.Time(r.At)
	for _, s := range []string{
		r.Type, r.Object, r.ObjectID, r.ObjectName, r.Environment, r.ActorKind, r.ActorID,
		r.ActorName, r.IPAddress, r.RequestID, r.Changes, r.EventContext,
	} {
		d.Text(s)
	}
	return d.Sum()
}

// decided returns what the roll-ups count of the row.
func (r *row) decided() stats.Decided {
	return stats.Decided{
		At: r.At, Environment: r.Environment, Permitted: r.Decision == Permit, ByControl: r.PolicyID != 0, Masked: r.masked,
		N: r.tally.Counted, Errors: r.tally.Errors, CacheHits: r.tally.CacheHits, TotalUS: r.tally.EvaluationUS, EachUS: r.EvaluationUS,
	}
}

// series returns the members of the row that stats.Series.Has compares.
func (r *row) series() stats.Series {
	return stats.Series{Environment: scope.Env(r.Environment), Resource: r.ResourceKey, Control: r.PolicyID, Bouncer: r.BouncerID, Subject: r.UserID}
}
