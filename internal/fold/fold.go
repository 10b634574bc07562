// Package fold keeps a flood of refusals from filling a log. Up to a rate each
// refusal is an entry of its own. Beyond it, refusals that are equal become one
// entry with their count, the first and the last time, and a digest of their ids.
// The caller offers refusals alone: what was permitted is never folded.
//
//	refusals ───Add───▶ Own    an entry, as always
//	                    Brief  an entry without documents: many bytes came
//	                    Folded counted; Due gives the entries that hold the counts
package fold

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/maphash"
	"sync"
	"time"
)

// Limits say when folding begins. One Folder is for one source: a tenant at the
// server, or a bouncer.
type Limits struct {
	// Burst refusals at once, then Rate a second, are entries of their own.
	Burst, Rate float64
	// EqualBurst and EqualRate are the same for refusals that are equal.
	EqualBurst, EqualRate float64
	// ByteBurst and ByteRate bound the bytes of entries of their own. Once half of the
	// burst is used up, entries go without documents.
	ByteBurst, ByteRate float64
	// Window is how long a count gathers before it becomes an entry.
	Window time.Duration
	// Sums is how many counts there are in a window, and PerOrigin how many of equal
	// refusals one address may have of them.
	Sums, PerOrigin int
}

// Defaults are the limits of the product. docs/operations/floods.md states them.
func Defaults() Limits {
	return Limits{
		Burst: 10_000, Rate: 50, EqualBurst: 1000, EqualRate: 10, ByteBurst: 16 << 20, ByteRate: 32 << 10,
		Window: 10 * time.Second, Sums: 64, PerOrigin: 8,
	}
}

// briefBytes is what an entry without documents may take.
const briefBytes = 1 << 10

// maxKnown bounds the keys and the ids that are remembered at a time.
const maxKnown = 1 << 14

// Verdict says what becomes of a refusal.
type Verdict uint8

// What becomes of a refusal.
const (
	Own Verdict = iota
	Brief
	Folded
)

// Grade says what the refusals of a sum have in common.
type Grade string

// The grades of a sum.
const (
	Equal Grade = "equal" // all but time and ids
	Alike Grade = "alike" // the address, the control and the resource
	Rest  Grade = "rest"  // nothing: there were too many kinds
)

// Refusal is one refusal, or an entry that already holds many.
type Refusal struct {
	// ID is unique.
	ID string
	// Resent: it came over a network and may come again. It is counted once. The log
	// itself knows an entry of its own again.
	Resent bool
	// First and Last are when it was decided; of one refusal they are the same.
	First, Last time.Time
	// Count is how many refusals it stands for; 0 is 1.
	Count int64
	// Equal, Alike and Origin are made by Key.
	Equal, Alike, Origin uint64
	// Bytes is about how large the entry would be.
	Bytes int
}

// Sum is a count that is ready to become an entry.
type Sum[E any] struct {
	ID          string // of the first refusal that was counted
	Grade       Grade
	Count       int64
	First, Last time.Time
	// Digest is SHA-256 over the ids in the order in which they were counted, each with
	// a newline: who kept the ids can prove that these and no others were counted.
	Digest  [sha256.Size]byte
	Example E

	from *sum[E]
}

// Folder folds the refusals of one source. It is safe for concurrent use.
type Folder[E any] struct {
	limits Limits

	mu           sync.Mutex
	own          bucket
	bytes        bucket
	equal        map[uint64]*bucket
	sums         map[uint64]*sum[E]
	origins      map[uint64]int // sums of equal refusals, by address
	seen, before map[uint64]struct{}
	began        time.Time // of the window
	total        int64
}

type sum[E any] struct {
	Sum[E]
	key, origin uint64
	ids         hash.Hash
}

// bucket holds tokens that come back at a rate.
type bucket struct {
	left float64
	at   time.Time
}

func (b *bucket) fill(now time.Time, burst, rate float64) {
	if b.at.IsZero() {
		b.left = burst
	} else if d := now.Sub(b.at).Seconds(); d > 0 {
		b.left = min(burst, b.left+d*rate)
	}
	b.at = now
}

// New makes a Folder.
func New[E any](l Limits) *Folder[E] {
	return &Folder[E]{limits: l, equal: map[uint64]*bucket{}, sums: map[uint64]*sum[E]{}, origins: map[uint64]int{}, seen: map[uint64]struct{}{}}
}

var seed = maphash.MakeSeed()

// Key is one number for parts that belong together. Nobody outside of this process
// can choose parts that have the number of others.
func Key(parts ...string) uint64 {
	all := make([]byte, 0, 512)
	for _, p := range parts {
		all = binary.AppendUvarint(all, uint64(len(p)))
		all = append(all, p...)
	}
	return maphash.Bytes(seed, all)
}

// Add says what becomes of a refusal, and counts one that is folded. For a new sum it asks for an
// example; the grade says what the example may contain.
func (f *Folder[E]) Add(now time.Time, r Refusal, example func(Grade) E) Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	verdict, repeated := f.admit(now, &r)
	if verdict == Folded && !repeated {
		f.count(now, &r, example)
	}
	return verdict
}

// Admit is Add, but does not count. The caller calls Count for a refusal that is folded, once it
// is answered. A refusal that was sent again needs Add.
func (f *Folder[E]) Admit(now time.Time, r Refusal) Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	verdict, _ := f.admit(now, &r)
	return verdict
}

// Count counts a refusal that Admit said is folded. example is the one of Add.
func (f *Folder[E]) Count(now time.Time, r Refusal, example func(Grade) E) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(now, &r, example)
}

// admit says what becomes of a refusal, and whether it was counted before.
func (f *Folder[E]) admit(now time.Time, r *Refusal) (verdict Verdict, repeated bool) {
	l := &f.limits
	r.Count = max(r.Count, 1)
	f.own.fill(now, l.Burst, l.Rate)
	f.bytes.fill(now, l.ByteBurst, l.ByteRate)
	same := f.equal[r.Equal]
	if same == nil {
		if len(f.equal) >= maxKnown {
			clear(f.equal)
		}
		same = &bucket{}
		f.equal[r.Equal] = same
	}
	same.fill(now, l.EqualBurst, l.EqualRate)
	// What holds a count already is no equal of single refusals.
	room := f.own.left >= 1 && f.bytes.left >= briefBytes && (same.left >= 1 || r.Count > 1)
	if r.Resent && f.isRepeated(r.ID, !room) {
		return Folded, true
	}
	if !room {
		return Folded, false
	}
	f.own.left--
	same.left--
	if f.bytes.left < l.ByteBurst/2 && r.Bytes > briefBytes || f.bytes.left < float64(r.Bytes) {
		f.bytes.left -= briefBytes
		return Brief, false
	}
	f.bytes.left -= float64(r.Bytes)
	return Own, false
}

// count adds a refusal to the sum that it belongs to.
func (f *Folder[E]) count(now time.Time, r *Refusal, example func(Grade) E) {
	if len(f.sums) == 0 {
		f.began = now
	}
	key, grade := r.Equal, Equal
	s := f.sums[key]
	if s == nil && (f.origins[r.Origin] >= f.limits.PerOrigin || len(f.sums) >= f.limits.Sums/2) {
		key, grade = r.Alike, Alike
		s = f.sums[key]
	}
	if s == nil && len(f.sums) >= f.limits.Sums-1 {
		key, grade = 0, Rest
		s = f.sums[key]
	}
	if s == nil {
		s = &sum[E]{Sum: Sum[E]{ID: r.ID, Grade: grade, First: r.First, Last: r.Last, Example: example(grade)}, key: key, origin: r.Origin, ids: sha256.New()}
		f.sums[key] = s
		if grade == Equal {
			f.origins[r.Origin]++
		}
	}
	n := max(r.Count, 1)
	s.Count += n
	if r.First.Before(s.First) {
		s.First = r.First
	}
	if r.Last.After(s.Last) {
		s.Last = r.Last
	}
	_, _ = s.ids.Write([]byte(r.ID + "\n"))
	f.total += n
}

// isRepeated reports whether the id was counted not long ago. counts: it is about to be.
func (f *Folder[E]) isRepeated(id string, counts bool) bool {
	key := Key(id)
	if _, ok := f.seen[key]; ok {
		return true
	}
	if _, ok := f.before[key]; ok {
		return true
	}
	if !counts {
		return false
	}
	if len(f.seen) >= maxKnown {
		f.before, f.seen = f.seen, make(map[uint64]struct{}, maxKnown)
	}
	f.seen[key] = struct{}{}
	return false
}

// Due gives the sums of a window that is over, or all that there are. The caller
// writes them, or returns them.
func (f *Folder[E]) Due(now time.Time, all bool) []Sum[E] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.sums) == 0 || !all && now.Sub(f.began) < f.limits.Window {
		return nil
	}
	out := make([]Sum[E], 0, len(f.sums))
	for _, s := range f.sums {
		s.ids.Sum(s.Digest[:0])
		ready := s.Sum
		ready.from = s
		out = append(out, ready)
	}
	clear(f.sums)
	clear(f.origins)
	return out
}

// PutBack takes back sums that could not be written: they go on counting.
func (f *Folder[E]) PutBack(now time.Time, sums []Sum[E]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.sums) == 0 {
		f.began = now
	}
	for i := range sums {
		old := sums[i].from
		s := f.sums[old.key]
		if s == nil {
			f.sums[old.key] = old
			if old.Grade == Equal {
				f.origins[old.origin]++
			}
			continue
		}
		// Counting began anew meanwhile: the ids that came first are in the digest as their own digest.
		s.Count += old.Count
		s.First = old.First
		_, _ = s.ids.Write(sums[i].Digest[:])
	}
}

// Total is how many refusals were folded.
func (f *Folder[E]) Total() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}
