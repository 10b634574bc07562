package cli

import (
	"encoding/xml"
	"fmt"
	"io"
)

// The elements of JUnit XML that CI systems read.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
		seconds  float64
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		File    string        `xml:"file,attr,omitempty"`
		Line    int           `xml:"line,attr,omitempty"`
		Time    string        `xml:"time,attr"`
		Skipped *struct{}     `xml:"skipped"`
		Failure *junitProblem `xml:"failure"`
		Error   *junitProblem `xml:"error"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes cases as JUnit XML, grouped by suite in the order of their first cases.
func writeJUnit(w io.Writer, name string, cases []Case) error {
	all := junitSuites{Name: "gatehouse policy " + name}
	index := map[string]int{}
	total := 0.0
	for _, c := range cases {
		i, known := index[c.Suite]
		if !known {
			i = len(all.Suites)
			index[c.Suite] = i
			all.Suites = append(all.Suites, junitSuite{Name: c.Suite})
		}
		s := &all.Suites[i]
		j := junitCase{Class: c.Suite, Name: c.Name, File: c.File, Line: c.Line, Time: seconds(c.Seconds), Output: c.Output}
		switch {
		case c.Skipped:
			j.Skipped = &struct{}{}
			s.Skipped++
			all.Skipped++
		case c.Error != "":
			j.Error = &junitProblem{firstLine(c.Error), c.Error}
			s.Errors++
			all.Errors++
		case c.Failure != "":
			j.Failure = &junitProblem{firstLine(c.Failure), c.Failure}
			s.Failures++
			all.Failures++
		}
		s.Tests++
		all.Tests++
		s.seconds += c.Seconds
		total += c.Seconds
		s.Cases = append(s.Cases, j)
	}
	for i := range all.Suites {
		all.Suites[i].Time = seconds(all.Suites[i].seconds)
	}
	all.Time = seconds(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }
