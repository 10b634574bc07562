// Package histogram counts latencies in steps. Counts of minutes can be added up to counts
// of hours, and both give percentiles. It is pure.
package histogram

import "math/bits"

// The steps of Latencies. There are eight for each doubling, so a percentile is wrong by at
// most an eighth.
const (
	stepBits         = 3
	stepsPerDoubling = 1 << stepBits
	latencySteps     = 27 * stepsPerDoubling // the last ends at 134 s
)

// latencyStep returns the step of a latency in microseconds.
func latencyStep(us int64) int {
	if us < 1 {
		return 0
	}
	top := bits.Len64(uint64(us)) - 1 // us is in [2^top, 2^(top+1))
	// The three bits below the highest one are the number of the eighth.
	eighth := int(us<<stepBits>>top) & (stepsPerDoubling - 1)
	if top > 60 {
		return latencySteps - 1
	}
	return min(top*stepsPerDoubling+eighth, latencySteps-1)
}

// stepBounds returns the smallest latency of a step and that of the next one, in microseconds.
func stepBounds(step int) (from, to float64) {
	at := func(s int) float64 {
		return float64(int64(1)<<(s/stepsPerDoubling)) * (1 + float64(s%stepsPerDoubling)/stepsPerDoubling)
	}
	if step == 0 {
		return 0, at(1)
	}
	return at(step), at(step + 1)
}

// Latencies counts evaluations by their latency.
type Latencies [latencySteps]int64

// Add counts n evaluations that took us microseconds each.
func (l *Latencies) Add(us, n int64) { l[latencyStep(us)] += n }

// Merge adds the counts of o.
func (l *Latencies) Merge(o *Latencies) {
	for i, n := range o {
		l[i] += n
	}
}

// Subtract subtracts the counts of o, which must be included in l.
func (l *Latencies) Subtract(o *Latencies) {
	for i, n := range o {
		l[i] -= n
	}
}

// Count returns how many evaluations were counted.
func (l *Latencies) Count() int64 {
	var sum int64
	for _, n := range l {
		sum += n
	}
	return sum
}

// Quantile returns the latency in milliseconds that a share q (0 to 1) of the evaluations
// did not exceed, accurate to an eighth. It returns 0 if nothing was counted.
func (l *Latencies) Quantile(q float64) float64 {
	total := l.Count()
	if total == 0 {
		return 0
	}
	rank := q * float64(total)
	var below float64
	for step, n := range l {
		if n == 0 {
			continue
		}
		if next := below + float64(n); next >= rank {
			from, to := stepBounds(step)
			return (from + (to-from)*(rank-below)/float64(n)) / 1000
		}
		below += float64(n)
	}
	_, to := stepBounds(latencySteps - 1)
	return to / 1000
}
