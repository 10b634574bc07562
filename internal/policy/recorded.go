package policy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// FromDecision is the Source of test cases that were made from recorded decisions.
const FromDecision = "decision"

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

// mergeCases returns the cases to store if sent replaces old. A sent case with a hidden input gets
// the stored input of the recorded case with its name. A sent case with the input of a recorded
// case counts as recorded, whatever its name. With keep, recorded cases that were not sent are
// kept.
func mergeCases(old, sent []TestCase, keep bool) ([]TestCase, error) {
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
	if keep {
		out = keepRecorded(old, out)
	}
	return out, nil
}

// keepRecorded adds the recorded cases of old that next does not have. Each comes after the case
// that it followed in old.
func keepRecorded(old, next []TestCase) []TestCase {
	at := func(name string) int {
		return slices.IndexFunc(next, func(c TestCase) bool { return c.Name == name })
	}
	for i, c := range old {
		if !c.recorded() || at(c.Name) >= 0 {
			continue
		}
		behind := -1
		if i > 0 {
			behind = at(old[i-1].Name)
		}
		next = slices.Insert(next, behind+1, c)
	}
	return next
}

// inputText returns a case's input as canonical text.
func inputText(c TestCase) string {
	text, _ := json.Marshal(c.Input) // never fails: the input was decoded from JSON
	return string(text)
}
