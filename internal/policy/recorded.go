package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// FromDecision is the Source of test cases that were made from recorded decisions.
const FromDecision = "decision"

// MaxCases is how many test cases a control may have.
const MaxCases = 1000

// recordedInputs is the permission to see the inputs of recorded decisions.
const recordedInputs scope.Permission = "audit:read"

// recordedName matches the names of cases that are made from decisions. Cases that were stored
// before cases had a source are recognised by it.
var recordedName = regexp.MustCompile(`^decision \S+ (permits|denies)( |$)`)

// recorded reports whether the case contains the input of a recorded decision.
func (c TestCase) recorded() bool {
	return c.Source == FromDecision || recordedName.MatchString(c.Name)
}

// MaySeeRecorded reports whether a caller may see the inputs of recorded decisions.
func MaySeeRecorded(sc scope.Scope) bool { return sc.Require(recordedInputs) == nil }

// shownCases returns test cases as a caller may see them: without the inputs of recorded
// decisions for a caller who may not read the audit.
func shownCases(sc scope.Scope, cases []TestCase) []TestCase {
	if MaySeeRecorded(sc) || !slices.ContainsFunc(cases, TestCase.recorded) {
		return cases
	}
	out := slices.Clone(cases)
	for i := range out {
		if out[i].recorded() {
			out[i].Input, out[i].Data, out[i].InputHidden = map[string]any{}, nil, true
		}
	}
	return out
}

// shownResults returns the results of cases as a caller may see them. A control's texts can
// contain its input, so the result of a hidden case has only its outcome.
func shownResults(sc scope.Scope, cases []TestCase, results []suite.TestResult) []suite.TestResult {
	if MaySeeRecorded(sc) {
		return results
	}
	for i := range results {
		if i < len(cases) && cases[i].recorded() {
			results[i].Reason, results[i].Why, results[i].Mask, results[i].Error = "", "", nil, ""
		}
	}
	return results
}

// shownTo returns the content as a caller may see it.
func (c Content) shownTo(sc scope.Scope) Content {
	c.TestCases = shownCases(sc, c.TestCases)
	return c
}

// shownDifferences returns differences as a caller may see them. They are computed from the
// stored values, so a hidden input that changed still counts as a difference.
func shownDifferences(sc scope.Scope, differences []MemberDifference) []MemberDifference {
	for i, d := range differences {
		for _, side := range []*any{&d.From, &d.To} {
			if cases, ok := (*side).([]TestCase); ok {
				*side = shownCases(sc, cases)
			}
		}
		differences[i] = d
	}
	return differences
}

// fillCases returns sent with the inputs that the caller could not see: a case with a hidden input
// gets the stored input of the recorded case with its name. A case with the input of a recorded
// case counts as recorded, whatever its name.
func fillCases(old, sent []TestCase) ([]TestCase, error) {
	inputs, named := map[string]bool{}, map[string][]TestCase{}
	for _, c := range old {
		if c.recorded() {
			inputs[inputText(c)] = !c.InputHidden
			named[c.Name] = append(named[c.Name], c)
		}
	}
	out := slices.Clone(sent)
	var offences []fault.Detail
	for i, c := range sent {
		was := named[c.Name]
		if len(was) > 0 && len(c.Input) == 0 && c.Data == nil {
			c.InputHidden = true // some clients drop input_hidden and send back the empty input
		}
		switch {
		case c.InputHidden && len(was) == 0:
			offences = append(offences, fault.Detail{Pointer: fmt.Sprintf("/test_cases/%d/input_hidden", i), Message: "no stored case of this name has a hidden input: send the input"})
		case c.InputHidden:
			expected := c.Expected
			c = was[0]
			c.Expected = expected
			if len(was) > 1 {
				named[c.Name] = was[1:]
			}
		case c.Source == "" && len(inputs) > 0 && inputs[inputText(c)]:
			c.Source = FromDecision
		}
		out[i] = c
	}
	if len(offences) > 0 {
		return nil, fault.CheckValues(offences[0].Message, offences)
	}
	return out, nil
}

// mergeCases returns the cases to store if sent replaces old. A caller who may not see recorded
// cases can neither change nor remove them: those that were not sent stay, and one that differs is
// refused. With keep, recorded cases that were not sent stay for every caller. Nobody can declare a
// case of their own to be recorded.
func mergeCases(sc scope.Scope, old, sent []TestCase, keep bool) ([]TestCase, error) {
	out, err := fillCases(old, sent)
	if err != nil {
		return nil, err
	}
	locked := !MaySeeRecorded(sc)
	pairs, left := pairRecorded(old, out)
	taken, inputs := map[string]bool{}, map[string]bool{}
	for _, c := range old {
		if c.recorded() {
			inputs[inputText(c)] = true
		}
	}
	for _, j := range pairs {
		if j >= 0 {
			taken[old[j].Name] = true
		}
	}
	var offences []fault.Detail
	for i, j := range pairs {
		at := fmt.Sprintf("/test_cases/%d", i)
		switch {
		case j >= 0 && sameCase(old[j], out[i]):
			out[i] = old[j]
		case locked && (j >= 0 || taken[out[i].Name] && out[i].recorded()):
			offences = append(offences, fault.Detail{Pointer: at, Message: fmt.Sprintf("the stored case %q was made from a recorded decision: without audit:read it cannot be changed or repeated", out[i].Name)})
		case j < 0 && sent[i].Source != "" && !inputs[inputText(out[i])]:
			offences = append(offences, fault.Detail{Pointer: at + "/source", Message: "only the service sets this, for a case that it makes from a recorded decision: leave it out"})
		}
	}
	switch {
	case len(offences) > 0:
		return nil, fault.CheckValues(offences[0].Message, offences)
	case locked || keep:
		return keepRecorded(old, left, out)
	default:
		return out, nil
	}
}

// restoredCases returns the cases to store if those of an old version replace the current ones. For
// a caller who may not see recorded cases, the current ones stay as they are.
func restoredCases(sc scope.Scope, current, version []TestCase) ([]TestCase, error) {
	if MaySeeRecorded(sc) {
		return version, nil
	}
	out := slices.Clone(version)
	pairs, left := pairRecorded(current, version)
	for i, j := range pairs {
		if j >= 0 {
			out[i] = current[j]
		}
	}
	return keepRecorded(current, left, out)
}

// inheritedCases returns the cases of a control that takes the place of others. For a caller who may not
// see recorded cases, it has those of the others, too, as they are.
func inheritedCases(sc scope.Scope, others []Policy, cases []TestCase) (_ []TestCase, err error) {
	for _, o := range others {
		if cases, err = restoredCases(sc, o.TestCases, cases); err != nil {
			return nil, err
		}
	}
	return cases, nil
}

// pairRecorded finds the recorded cases of old in next. For each case of next, pairs has the index
// of its recorded case in old, or -1: the same case or, if there is none, one with the same name.
// left has the indexes of the recorded cases that are not in next.
func pairRecorded(old, next []TestCase) (pairs, left []int) {
	others := map[string]bool{} // names of cases that people wrote
	for j, c := range old {
		if c.recorded() {
			left = append(left, j)
		} else {
			others[c.Name] = true
		}
	}
	pairs = slices.Repeat([]int{-1}, len(next))
	sameName := func(a, b TestCase) bool { return a.Name == b.Name && !others[b.Name] }
	for _, fits := range []func(a, b TestCase) bool{sameCase, sameName} {
		for i, c := range next {
			if pairs[i] >= 0 {
				continue
			}
			if k := slices.IndexFunc(left, func(j int) bool { return fits(old[j], c) }); k >= 0 {
				pairs[i] = left[k]
				left = slices.Delete(left, k, k+1)
			}
		}
	}
	return pairs, left
}

// keepRecorded adds the cases of old with the indexes left to next. Each comes after the case that
// it followed in old.
func keepRecorded(old []TestCase, left []int, next []TestCase) ([]TestCase, error) {
	if len(left) > 0 && len(left)+len(next) > MaxCases {
		return nil, fault.Invalidf("/test_cases", "a control may have at most %d test cases, and %d made from recorded decisions stay", MaxCases, len(left))
	}
	for _, j := range left {
		at := 0
		for i, c := range next {
			if j > 0 && c.Name == old[j-1].Name {
				at = i + 1
			}
		}
		next = slices.Insert(next, at, old[j])
	}
	return next, nil
}

// recordedChanges counts the recorded cases that were added, changed and removed; nil if none was.
func recordedChanges(old, next []TestCase) map[string]int {
	pairs, left := pairRecorded(old, next)
	out := map[string]int{}
	if len(left) > 0 {
		out["removed"] = len(left)
	}
	for i, j := range pairs {
		switch {
		case j >= 0 && !sameCase(old[j], next[i]):
			out["changed"]++
		case j < 0 && next[i].recorded():
			out["added"]++
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// sameCase reports whether two cases test the same. Their sources can differ.
func sameCase(a, b TestCase) bool {
	return a.Name == b.Name && a.Expected == b.Expected && reflect.DeepEqual(a.Data, b.Data) && inputText(a) == inputText(b)
}

// inputText returns a case's input as canonical text.
func inputText(c TestCase) string {
	text, _ := json.Marshal(c.Input) // never fails: the input was decoded from JSON
	return string(text)
}
