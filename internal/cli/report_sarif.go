package cli

import (
	"cmp"
	"net/url"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// The members of SARIF 2.1.0 that are written (OASIS Standard, sections 3.13 to 3.30).
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI       string `json:"uri"`
		URIBaseID string `json:"uriBaseId,omitempty"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
)

// sarifOf returns a log of one run. A finding without a file has no location.
func sarifOf(issues []lang.FileIssue, version string) sarifLog {
	rules := []sarifRule{}
	index := map[string]int{}
	results := []sarifResult{}
	for _, is := range issues {
		rule := cmp.Or(is.Rule, "gatehouse")
		if _, known := index[rule]; !known {
			index[rule] = len(rules)
			rules = append(rules, sarifRule{rule})
		}
		r := sarifResult{RuleID: rule, RuleIndex: index[rule], Level: "error", Message: sarifText{is.Message}, Locations: []sarifLocation{}}
		if is.Severity == lang.SeverityWarning {
			r.Level = "warning"
		}
		if is.File != "" {
			at := sarifPhysical{Artifact: sarifArtifact{URI: (&url.URL{Path: is.File}).String(), URIBaseID: "%SRCROOT%"}}
			if is.Line > 0 {
				at.Region = &sarifRegion{StartLine: is.Line, StartColumn: max(0, is.Column)}
			}
			r.Locations = append(r.Locations, sarifLocation{at})
		}
		results = append(results, r)
	}
	slices.SortStableFunc(results, func(a, b sarifResult) int {
		return len(b.Locations) - len(a.Locations) // findings about files first
	})
	return sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{Tool: sarifTool{sarifDriver{Name: "gatehouse", Version: version, Rules: rules}}, ColumnKind: "unicodeCodePoints", Results: results}},
	}
}
