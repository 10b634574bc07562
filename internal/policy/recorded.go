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

// FromDecision is the source of test cases that were made of recorded decisions.
const FromDecision = "decision"

// recordedInputs is what a caller must hold to see what recorded requests held.
const recordedInputs scope.Permission = "audit:read"

// recordedName matches the names that cases of decisions are made with. Cases that
// were stored before they had a source are known by it.
var recordedName = regexp.MustCompile(`^decision \S+ (permits|denies)( |$)`)

// recorded reports whether the case holds the input of a recorded decision.
func (c TestCase) recorded() bool {
	return c.Source == FromDecision || recordedName.MatchString(c.Name)
}

// SeesRecorded reports whether a caller may see the inputs of recorded decisions.
func SeesRecorded(sc scope.Scope) bool { return sc.Require(recordedInputs) == nil }

// shownCases are test cases as a caller may see them: without the inputs of recorded
// decisions for whoever may not read the audit.
func shownCases(sc scope.Scope, cases []TestCase) []TestCase {
	if SeesRecorded(sc) || !slices.ContainsFunc(cases, TestCase.recorded) {
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

// shownResults are the results of cases as a caller may see them. What a control says
// can hold its input, so of a hidden case the outcome alone stays.
func shownResults(sc scope.Scope, cases []TestCase, results []suite.TestResult) []suite.TestResult {
	if SeesRecorded(sc) {
		return results
	}
	for i := range results {
		if i < len(cases) && cases[i].recorded() {
			results[i].Reason, results[i].Why, results[i].Mask, results[i].Error = "", "", nil, ""
		}
	}
	return results
}

// shownTo is the content as a caller may see it.
func (c Content) shownTo(sc scope.Scope) Content {
	c.TestCases = shownCases(sc, c.TestCases)
	return c
}

// shownDifferences are differences as a caller may see them. They are found on what
// is stored, so that a hidden input that changed still counts as a difference.
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

// mergeCases gives the cases to store where sent take the place of old. A sent case
// with a hidden input gets the stored input of the case of its name; a sent case with
// the input of a recorded one stays a recorded one, whatever its name. With keep,
// recorded cases that were not sent stay where they were.
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
			c.InputHidden = true // a client that leaves out the mark sends the empty input back
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
		f := fault.New(fault.Invalid, "validation_failed", offences[0].Message)
		f.Details = offences
		return nil, f
	}
	if keep {
		out = keepRecorded(old, out)
	}
	return out, nil
}

// keepRecorded adds the recorded cases of old that next has not, each behind the case
// that it stood behind.
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

// inputText is a case's input as canonical text.
func inputText(c TestCase) string {
	text, _ := json.Marshal(c.Input) // what came as JSON goes as JSON
	return string(text)
}
