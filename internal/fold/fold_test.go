package fold

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"
)

var begin = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func tight() Limits {
	return Limits{Burst: 20, Rate: 1, EqualBurst: 5, EqualRate: 1, ByteBurst: 100 << 10, ByteRate: 1 << 10, Window: 10 * time.Second, Sums: 8, PerOrigin: 2}
}

func one(id int, at time.Time, address, path string, bytes int) Refusal {
	return Refusal{
		ID: fmt.Sprint("d", id), First: at, Last: at, Equal: Key(address, path), Alike: Key(address), Origin: Key(address), Bytes: bytes,
	}
}

// Whatever is offered, in whatever order, each refusal is an entry of its own or in
// exactly one sum, the entries are bounded, and the digests are those of the ids.
func TestFoldLosesNothing(t *testing.T) {
	for name, kind := range map[string]func(i int) (address, path string){
		"one request":                func(int) (string, string) { return "10.0.0.1", "/a" },
		"many paths of one address":  func(i int) (string, string) { return "10.0.0.1", fmt.Sprint("/", i) },
		"many addresses":             func(i int) (string, string) { return fmt.Sprint("10.0.", i/256, ".", i%256), "/a" },
		"many of both":               func(i int) (string, string) { return fmt.Sprint("10.0.", i%7, ".1"), fmt.Sprint("/", i%31) },
		"some of each, in a mixture": func(i int) (string, string) { return fmt.Sprint("a", i*i%5), fmt.Sprint("/", i*i%11) },
	} {
		f := New[Grade](tight())
		now, own, counted := begin, 0, int64(0)
		var order []string
		folded := map[string]bool{}
		sums := 0
		take := func(list []Sum[Grade]) {
			if len(list) == 0 {
				return
			}
			for _, s := range list {
				sums++
				counted += s.Count
				if s.Example != s.Grade || s.First.After(s.Last) || !folded[s.ID] {
					t.Errorf("%s: %+v", name, s)
				}
				if len(list) == 1 {
					h := sha256.New()
					for _, id := range order {
						fmt.Fprintln(h, id)
					}
					if [32]byte(h.Sum(nil)) != s.Digest {
						t.Errorf("%s: the digest is not that of %d ids", name, len(order))
					}
				}
			}
			order = nil
		}
		const n = 5000
		for i := range n {
			now = now.Add(5 * time.Millisecond)
			address, path := kind(i)
			r := one(i, now, address, path, 300)
			r.Resent = true
			switch f.Add(now, r, func(g Grade) Grade { return g }) {
			case Own, Brief:
				own++
			case Folded:
				order, folded[r.ID] = append(order, r.ID), true
				if f.Add(now, r, func(g Grade) Grade { return g }) == Folded && f.Total() != int64(len(folded)) {
					t.Fatalf("%s: %s counts twice", name, r.ID)
				}
			}
			take(f.Due(now, false))
		}
		take(f.Due(now, true))
		if own+int(counted) != n || f.Total() != counted {
			t.Errorf("%s: %d entries and %d counted, of %d", name, own, counted, n)
		}
		// 25 s at one a second, and three windows of eight sums.
		if own > 20+26 || sums > 4*8 {
			t.Errorf("%s: %d entries and %d sums", name, own, sums)
		}
	}
}

// Below the rates nothing is folded, however long it lasts, and the folding ends with the flood.
func TestNormalRatesStay(t *testing.T) {
	f := New[Grade](tight())
	now := begin
	offer := func(i int) Verdict {
		return f.Add(now, one(i, now, "10.0.0.1", "/a", 200), func(g Grade) Grade { return g })
	}
	for i := range 1000 {
		now = now.Add(1100 * time.Millisecond)
		if v := offer(i); v != Own {
			t.Fatalf("refusal %d became %d", i, v)
		}
	}
	for i := range 100 {
		offer(2000 + i)
	}
	if f.Total() < 90 {
		t.Errorf("of a flood only %d were folded", f.Total())
	}
	now = now.Add(time.Minute)
	f.Due(now, true)
	if v := offer(5000); v != Own {
		t.Errorf("after the flood a refusal became %d", v)
	}
}

// One address that floods leaves other addresses' refusals their own sums.
func TestOneAddressLeavesRoom(t *testing.T) {
	f := New[Grade](tight())
	grade := func(g Grade) Grade { return g }
	for i := range 1000 {
		f.Add(begin, one(i, begin, "10.0.0.1", fmt.Sprint("/", i), 100), grade)
	}
	f.Add(begin, one(5000, begin, "10.0.0.2", "/b", 100), grade)
	equal := 0
	for _, s := range f.Due(begin, true) {
		if s.ID == "d5000" && s.Grade == Equal && s.Count == 1 {
			equal++
		}
	}
	if equal != 1 {
		t.Error("the other address has no sum of its own")
	}
}

// Large entries lose their documents before anything is folded, and bytes are bounded.
func TestLargeEntries(t *testing.T) {
	l := tight()
	l.Burst, l.EqualBurst = 1e6, 1e6
	f := New[Grade](l)
	verdicts := map[Verdict]int{}
	for i := range 1000 {
		verdicts[f.Add(begin, one(i, begin, "a", "/", 10<<10), func(g Grade) Grade { return g })]++
	}
	if verdicts[Own] != 6 || verdicts[Brief] < 20 || verdicts[Own]*10<<10+verdicts[Brief]*briefBytes > 100<<10 || verdicts[Folded] < 900 {
		t.Errorf("%v", verdicts)
	}
}

// What a bouncer folded stays one entry while there is room, and is added up when there is none.
func TestFoldedTwice(t *testing.T) {
	f := New[Grade](tight())
	r := one(1, begin, "a", "/", 100)
	r.Count, r.Last = 500, begin.Add(time.Second)
	if v := f.Add(begin, r, func(g Grade) Grade { return g }); v != Own {
		t.Errorf("it became %d", v)
	}
	for i := range 100 {
		r.ID = fmt.Sprint("x", i)
		f.Add(begin, r, func(g Grade) Grade { return g })
	}
	if s := f.Due(begin, true); len(s) != 1 || s[0].Count != f.Total() || s[0].Count < 500*80 || s[0].Last != r.Last {
		t.Errorf("%+v", s)
	}
}
