// Package classify proposes the classification of a resource from its name and address. It does no
// I/O.
//
//	name, url, original host, business context
//	       │ lower-cased, concatenated
//	       ▼
//	  fixed markers ──► kind: the first of llm_endpoint, mcp_server, agent, rag_index that matches, else api
//	       │            provider, model family, protocol version (AI kinds only)
//	       │            personal data, capabilities, destinations, compliance
//	       ▼
//	  Proposal: the values, the confidence, one line of rationale for each marker
//
// If the confidence is too low, the caller may ask an assistant. NewPrompt makes the prompt, and
// Merge reads the answer. The caller makes the call.
package classify

import (
	"fmt"
	"slices"
	"strings"
)

// The kinds that the heuristic distinguishes.
const (
	LLMEndpoint = "llm_endpoint"
	MCPServer   = "mcp_server"
	Agent       = "agent"
	RAGIndex    = "rag_index"
	API         = "api"
)

// The origin of a proposal.
const (
	Heuristic = "heuristic"
	Assist    = "assist"
)

// AssistThreshold is the confidence below which the assisted fallback is used.
const AssistThreshold = 0.6

// Subject is the part of a resource that the heuristic reads.
type Subject struct {
	Name            string
	URL             string
	OriginalHost    string
	BusinessContext string
}

// Proposal is the proposed classification of a resource.
type Proposal struct {
	Kind                string   `json:"resource_kind" enum:"api,llm_endpoint,mcp_server,agent,rag_index,dataset,tool" doc:"What it probably is; api by default."`
	AIProvider          *string  `json:"ai_provider" nullable:"true" doc:"Who probably hosts its model: openai, anthropic, google, azure, aws or self_hosted; null if unknown, and for kinds without a model." example:"openai"`
	AIModelFamily       *string  `json:"ai_model_family" nullable:"true" doc:"Model family that the request names; null if none." example:"gpt-4*"`
	MCPProtocolVersion  *string  `json:"mcp_protocol_version" nullable:"true" doc:"Protocol version of an mcp_server; null if none is named." example:"2025-06-18"`
	AgentCapabilities   []string `json:"agent_capabilities" enum:"tool_use,code_exec,file_io,web_browse,memory" doc:"What its paths allow it to do."`
	PIICategories       []string `json:"pii_categories" enum:"names,emails,ssn,card_numbers,health_records,addresses" doc:"Personal data that it seems to contain."`
	EgressDestinations  []string `json:"egress_destinations" doc:"Other host names that it mentions."`
	SuggestedData       *string  `json:"suggested_data_classification" nullable:"true" doc:"public, internal, confidential or restricted; null if nothing indicates one." example:"restricted"`
	SuggestedCompliance []string `json:"suggested_compliance_tags" doc:"Regimes that probably apply."`
	Confidence          float64  `json:"confidence" minimum:"0" maximum:"1" doc:"0.4 for the default kind; 0.6 for a kind that a marker shows, and 0.1 more for each further independent marker, at most 1." example:"0.8"`
	Source              string   `json:"source" enum:"heuristic,assist" doc:"Source of the proposal."`
	Rationale           []string `json:"rationale" doc:"One line for each marker."`
}

// AI reports whether resources of a kind have a model behind them.
func AI(kind string) bool {
	return kind == LLMEndpoint || kind == MCPServer || kind == Agent || kind == RAGIndex
}

// Propose applies the heuristic.
func Propose(s Subject) Proposal {
	f := newFinder(s)
	p := Proposal{
		Kind: API, Source: Heuristic, AgentCapabilities: []string{}, PIICategories: []string{},
		EgressDestinations: []string{}, SuggestedCompliance: []string{}, Rationale: []string{},
	}
	for _, k := range kindMarkers() {
		if f.all("resource_kind "+k.value, k.markers) > 0 {
			p.Kind = k.value
			break
		}
	}
	if p.Kind == API {
		f.note("resource_kind api: no marker of another kind, so the default")
	}
	if AI(p.Kind) {
		p.AIProvider = f.first("ai_provider", providerMarkers())
		p.AIModelFamily = f.first("ai_model_family", familyMarkers())
	}
	if p.Kind == MCPServer {
		p.MCPProtocolVersion = f.first("mcp_protocol_version", protocolMarkers())
	}
	p.AgentCapabilities = f.each("agent_capabilities", capabilityMarkers())
	p.PIICategories = f.each("pii_categories", piiMarkers())
	p.SuggestedCompliance = f.each("suggested_compliance_tags", regimeMarkers())
	p.EgressDestinations = f.destinations(s)
	f.suggest(&p)
	p.Rationale = f.lines
	p.Confidence = confidence(p.Kind, len(f.seen))
	return p
}

// confidence returns the confidence in a kind after a number of independent markers. The first
// marker of a kind other than the default raises it to 0.6.
func confidence(kind string, markers int) float64 {
	tenths := 4 + markers
	if kind != API {
		tenths = 6 + markers - 1
	}
	return float64(min(tenths, 10)) / 10
}

// suggest derives the classification and the regulations that follow from the personal data. They
// are conclusions, not markers.
func (f *finder) suggest(p *Proposal) {
	level, because := "", ""
	for _, c := range p.PIICategories {
		switch c {
		case "ssn", "card_numbers", "health_records":
			level, because = "restricted", c
		default:
			if level == "" {
				level, because = "confidential", c
			}
		}
		if level == "restricted" && because == c {
			break
		}
	}
	if level == "" && AI(p.Kind) {
		level, because = "internal", p.Kind
	}
	if level != "" {
		p.SuggestedData = &level
		f.note(fmt.Sprintf("suggested_data_classification %s: follows from %s", level, because))
	}
	for _, c := range p.PIICategories {
		tag := map[string]string{"card_numbers": "PCI-DSS", "health_records": "HIPAA"}[c]
		if tag == "" {
			tag = "GDPR"
		}
		if !slices.Contains(p.SuggestedCompliance, tag) {
			p.SuggestedCompliance = append(p.SuggestedCompliance, tag)
			f.note(fmt.Sprintf("suggested_compliance_tags %s: follows from %s", tag, c))
		}
	}
	slices.Sort(p.SuggestedCompliance)
}

// finder looks for markers in one subject, and collects those that it finds.
type finder struct {
	text  string // in lower case, with the parts separated by a space
	words string // the same, with each run of other characters replaced by one space
	seen  []string
	lines []string
}

func newFinder(s Subject) *finder {
	text := strings.ToLower(strings.Join([]string{s.Name, s.URL, s.OriginalHost, s.BusinessContext}, " "))
	return &finder{text: text, words: inWords(text), lines: []string{}}
}

// inWords returns text with a space before, after and between its words.
func inWords(text string) string {
	words := " " + strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return r < 0x80 && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), " ") + " "
	return strings.ReplaceAll(words, " user agent ", " ") // a browser is not an agent
}

func (f *finder) note(line string) { f.lines = append(f.lines, line) }

// found records a marker. It counts for the confidence unless a marker that counted already equals
// or contains it.
func (f *finder) found(what, text string) {
	f.note(fmt.Sprintf("%s: %q", what, text))
	bare := strings.Trim(text, "/ ")
	for _, s := range f.seen {
		if strings.Contains(s, bare) || strings.Contains(bare, s) {
			return
		}
	}
	f.seen = append(f.seen, bare)
}

// all records and counts every marker that occurs.
func (f *finder) all(what string, ms []marker) int {
	n := 0
	for _, m := range ms {
		if text, ok := f.find(m); ok {
			f.found(what, text)
			n++
		}
	}
	return n
}

// first returns the first choice with a marker, or nil.
func (f *finder) first(what string, cs []choice) *string {
	for _, c := range cs {
		for _, m := range c.markers {
			if text, ok := f.find(m); ok {
				f.found(what+" "+c.value, text)
				return &c.value
			}
		}
	}
	return nil
}

// each returns every choice with a marker, with one line of rationale each.
func (f *finder) each(what string, cs []choice) []string {
	out := []string{}
	for _, c := range cs {
		for _, m := range c.markers {
			if text, ok := f.find(m); ok {
				f.found(what+" "+c.value, text)
				out = append(out, c.value)
				break
			}
		}
	}
	return out
}

// find returns the first text of a marker that occurs in the subject.
func (f *finder) find(m marker) (string, bool) {
	for _, t := range m.raw {
		if strings.Contains(f.text, t) {
			return t, true
		}
	}
	for _, t := range m.words {
		if strings.Contains(f.words, " "+t+" ") {
			return t, true
		}
	}
	for _, t := range m.paths {
		if hasPath(f.text, t) {
			return t, true
		}
	}
	return "", false
}

// hasPath reports whether a path segment of text begins with that of marker: alone, in the plural,
// or followed by a character that is not a letter. /run occurs in /run, /runs/7 and /run-code, but
// not in /runtime. What follows two slashes is a host.
func hasPath(text, marker string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], marker)
		if i < 0 {
			return false
		}
		host := from+i > 0 && text[from+i-1] == '/'
		from += i + len(marker)
		if host {
			continue
		}
		rest := strings.TrimPrefix(text[from:], "s")
		if !beginsWithLetter(text[from:]) || !beginsWithLetter(rest) {
			return true
		}
	}
}

func beginsWithLetter(s string) bool { return s != "" && s[0] >= 'a' && s[0] <= 'z' }
