package replay

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
)

// key identifies a control in spec.Controls: its text and the libraries with which it is compiled.
type key struct {
	meta              rego.Meta
	source, libraries string
}

// text returns the index of a control in spec.Controls, compiled with the libraries of a shelf that
// it imports. It adds the control if it is new.
func (p *plan) text(c compare.Control, shelf []lang.Library) int {
	c.Libraries = nil
	for _, l := range p.reached(c.Source, shelf) {
		c.Libraries = append(c.Libraries, p.library(l))
	}
	k := key{c.Meta, c.Source, fmt.Sprint(c.Libraries)}
	i, ok := p.index[k]
	if !ok {
		i = len(p.spec.Controls)
		p.spec.Controls, p.index[k] = append(p.spec.Controls, c), i
	}
	return i
}

// library returns the index of a library in spec.Libraries. It adds the library if it is new.
func (p *plan) library(l lang.Library) int {
	i := slices.Index(p.spec.Libraries, l)
	if i < 0 {
		i = len(p.spec.Libraries)
		p.spec.Libraries = append(p.spec.Libraries, l)
	}
	return i
}

// mix adds the controls of a state as baseline, and with the changes as candidate, to spec.Mixes.
// It returns the index.
func (p *plan) mix(st state) int {
	cand := maps.Clone(st.active)
	for id, at := range cand {
		cand[id] = p.relinked(at, st.shelf)
	}
	for _, c := range p.changes {
		if c.remove {
			delete(cand, c.id)
			continue
		}
		at := p.asThen(c.control, st.shelf)
		if was, ok := st.active[c.id]; ok && alike(p.spec.Controls[was], p.spec.Controls[at]) {
			at = was // it is active already
		}
		cand[c.id] = at
	}
	p.spec.Mixes = append(p.spec.Mixes, compare.ControlLists{Baseline: byID(st.active), Candidate: byID(cand)})
	return len(p.spec.Mixes) - 1
}

// asThen returns the index of a control of the candidate with the libraries of a state, because the
// control with which it is compared has them, too. If it does not compile with them, the replay
// uses today's libraries, with which it must compile.
func (p *plan) asThen(c compare.Control, shelf []lang.Library) int {
	today := p.text(c, p.changed(p.shelf))
	c.Old, c.Instead = true, today+1
	return p.text(c, p.changed(shelf))
}

// relinked returns the index of a control of a state with the changed libraries of the candidate,
// if it imports one of them. If the control is no longer active and does not compile with them, the
// replay uses it unchanged.
func (p *plan) relinked(at int, shelf []lang.Library) int {
	c := p.spec.Controls[at]
	next := p.changed(shelf)
	if len(p.swaps) == 0 || !slices.ContainsFunc(p.reached(c.Source, next), p.swapped) {
		return at
	}
	if c.Old = c.Old && p.current[c.ID] != c.Version; c.Old {
		c.Instead = at + 1
	}
	return p.text(c, next)
}

// alike reports whether two controls make the same decisions.
func alike(a, b compare.Control) bool {
	return a.Meta == b.Meta && a.Source == b.Source && slices.Equal(a.Libraries, b.Libraries)
}

func byID(m map[int64]int) []int {
	out := make([]int, 0, len(m))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[id])
	}
	return out
}

// prune drops the controls and libraries that no mix uses.
func (p *plan) prune() {
	used := map[int]bool{}
	for _, m := range p.spec.Mixes {
		for _, list := range [][]int{m.Baseline, m.Candidate} {
			for _, at := range list {
				for at >= 0 && !used[at] {
					used[at] = true
					at = p.spec.Controls[at].Instead - 1
				}
			}
		}
	}
	controls, libraries := p.spec.Controls, p.spec.Libraries
	p.spec.Controls, p.spec.Libraries, p.index = nil, nil, nil
	moved := make([]int, len(controls))
	for i, c := range controls { // a substitute has a lower index than the control that it replaces
		if !used[i] {
			continue
		}
		c.Libraries = slices.Clone(c.Libraries)
		for j, at := range c.Libraries {
			c.Libraries[j] = p.library(libraries[at])
		}
		if c.Instead > 0 {
			c.Instead = moved[c.Instead-1] + 1
		}
		moved[i] = len(p.spec.Controls)
		p.spec.Controls = append(p.spec.Controls, c)
	}
	for _, m := range p.spec.Mixes {
		for _, list := range [][]int{m.Baseline, m.Candidate} {
			for i, at := range list {
				list[i] = moved[at]
			}
		}
	}
}
