package devdocs

import (
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// faults are the errors of the API and the forms of error bodies, from docs/errors.md.
type faults struct {
	sections []*faultSection
	shapes   []faultShape
}

// faultSection is one table of errors.
type faultSection struct {
	ID, Title string
	// Status means that the table has a column with the statuses.
	Status bool
	// Elsewhere means that these are errors of a bouncer, and not of the API.
	Elsewhere bool
	Rows      []*faultRow
}

// faultRow explains one or more codes.
type faultRow struct {
	Codes    []faultCode
	Status   string
	Statuses []int
	Meaning  template.HTML
	Search   string

	key, english string
}

// faultCode is a code and its anchor on the page. If a code is in several tables, the anchors
// of all but the first begin with the id of the section.
type faultCode struct{ Name, Anchor string }

// faultShape is the form of error bodies of an area.
type faultShape struct{ Where, Body template.HTML }

// cause is a reason why a request fails with a status.
type cause struct {
	Code    string
	Meaning template.HTML
}

// faultTexts are the translations. The keys of titles and forms are their English texts. The key of
// a row is its first code, because that changes less often than the text.
type faultTexts struct {
	Sections map[string]string `json:"sections"`
	Shapes   map[string]string `json:"shapes"`
	Rows     map[string]string `json:"rows"`
}

var quoted = regexp.MustCompile("`([a-z_]+)`")

// readFaults reads docs/errors.md and its translation.
func readFaults(e *edition) (*faults, error) {
	page, err := docsPage("errors.md")
	if err != nil {
		return nil, err
	}
	out := parseFaults(page)
	var texts faultTexts
	if e.lang != "en" {
		if err := readJSON("errors/"+e.lang+".json", &texts); err != nil {
			return nil, err
		}
	}
	md := e.markdown("")
	for _, s := range out.sections {
		s.Title = translated(texts.Sections, s.Title, s.Title)
		for _, r := range s.Rows {
			text := translated(texts.Rows, r.key, r.english)
			if r.Meaning, err = md.inline(text); err != nil {
				return nil, err
			}
			r.Search = strings.ToLower(r.key + " " + r.Status + " " + text)
			for _, c := range r.Codes {
				r.Search += " " + c.Name
			}
		}
	}
	for i, s := range out.shapes {
		if out.shapes[i].Where, err = md.inline(translated(texts.Shapes, string(s.Where), string(s.Where))); err != nil {
			return nil, err
		}
		if out.shapes[i].Body, err = md.inline(translated(texts.Shapes, string(s.Body), string(s.Body))); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// translated returns the text in the reader's language, or the English text if there is no
// translation.
func translated(texts map[string]string, key, english string) string {
	if to := texts[key]; to != "" {
		return to
	}
	return english
}

// parseFaults reads the tables of the page. The first one has the forms of error bodies.
func parseFaults(page string) *faults {
	out := &faults{}
	section := &faultSection{}
	seen := map[string]bool{}
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			title = strings.TrimSpace(title)
			section = &faultSection{Title: title, ID: slug(title), Elsewhere: strings.Contains(title, "bouncer")}
			continue
		}
		if strings.HasPrefix(line, "What a bouncer says in its log") { // a second table below one title
			section = &faultSection{Title: strings.TrimSuffix(strings.TrimSpace(line), ":"), ID: "bouncer-log", Elsewhere: true}
		}
		cells := cellsOf(line)
		if len(cells) < 2 || strings.Trim(cells[0], "-") == "" || cells[0] == "Code" || cells[0] == "Area" {
			continue
		}
		if section.Title == "" {
			out.shapes = append(out.shapes, faultShape{template.HTML(cells[0]), template.HTML(cells[1])}) //nolint:gosec // rendered by readFaults
			continue
		}
		if len(section.Rows) == 0 {
			out.sections = append(out.sections, section)
		}
		row := rowOf(cells, section, seen)
		section.Status = section.Status || row.Status != ""
		section.Rows = append(section.Rows, row)
	}
	return out
}

// cellsOf returns the cells of a line of a table, or nil if the line is not part of a table.
func cellsOf(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") {
		return nil
	}
	var out []string
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), " | ") {
		out = append(out, strings.TrimSpace(strings.Trim(cell, "|")))
	}
	return out
}

func rowOf(cells []string, section *faultSection, seen map[string]bool) *faultRow {
	row := &faultRow{english: cells[len(cells)-1]}
	for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
		anchor := m[1]
		if seen[anchor] {
			anchor = section.ID + "-" + anchor
		}
		seen[anchor] = true
		row.Codes = append(row.Codes, faultCode{m[1], anchor})
	}
	if len(row.Codes) > 0 {
		row.key = row.Codes[0].Anchor
	}
	if len(cells) > 2 {
		row.Status = cells[1]
		for part := range strings.SplitSeq(row.Status, ",") {
			if n, err := strconv.Atoi(strings.TrimSpace(part)); err == nil {
				row.Statuses = append(row.Statuses, n)
			}
		}
	}
	return row
}

// general has, by status, the codes with which any operation may fail. Package rest returns them.
// Those with a condition (needs) are left out if it does not hold.
var general = map[int][]string{
	http.StatusBadRequest:            {"invalid_json", "unknown_parameter", "invalid_parameter", "invalid_query", "tenant_conflict", "environment_conflict", "invalid_idempotency_key", "ambiguous_credentials"},
	http.StatusUnauthorized:          {"authentication_required", "invalid_credentials"},
	http.StatusForbidden:             {"permission_denied", "environment_denied", "tenant_access_denied"},
	http.StatusNotFound:              {"not_found", "tenant_not_found"},
	http.StatusConflict:              {"already_exists", "already_created"},
	http.StatusPreconditionFailed:    {"precondition_failed"},
	http.StatusRequestEntityTooLarge: {"payload_too_large"},
	http.StatusUnsupportedMediaType:  {"unsupported_media_type"},
	http.StatusUnprocessableEntity:   {"validation_failed", "invalid_text", "idempotency_key_reused"},
	http.StatusTooManyRequests:       {"rate_limit_exceeded"},
	http.StatusInternalServerError:   {"internal_error"},
	http.StatusBadGateway:            {"target_unreachable"},
	http.StatusServiceUnavailable:    {"store_unavailable", "not_ready"},
	http.StatusInsufficientStorage:   {"storage_full"},
}

// needs reports whether a general code can apply to an operation.
func needs(code string, op *operation) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(op.Params, func(p parameter) bool { return p.Name == name })
	}
	switch code {
	case "invalid_json", "validation_failed", "invalid_text":
		return op.Request != nil
	case "tenant_conflict", "ambiguous_credentials":
		return has("X-Tenant-ID")
	case "environment_conflict":
		return op.Reach == "environment"
	case "already_created", "idempotency_key_reused", "invalid_idempotency_key", "already_exists":
		return has("Idempotency-Key")
	case "permission_denied":
		return op.Permission != ""
	default:
		return true
	}
}

// coded are the schemas of error bodies that contain the code.
var coded = []string{"Error", "TenantError", "RateLimitError"}

// causes returns the errors with which an operation fails with the status of an answer: first those
// that its description names, then the general ones.
func (f *faults) causes(op *operation, a answer) []cause {
	var named, rest []cause
	add := func(to *[]cause, row *faultRow, code string) {
		if !slices.Contains(coded, a.Shape) {
			code = "" // the body has only the message
		}
		*to = append(*to, cause{code, row.Meaning})
	}
	mentioned := map[string]bool{}
	for _, m := range quoted.FindAllStringSubmatch(op.Description, -1) {
		mentioned[m[1]] = true
	}
	for _, s := range f.sections {
		if s.Elsewhere {
			continue
		}
		for _, row := range s.Rows {
			if !slices.Contains(row.Statuses, a.Status) {
				continue
			}
			for _, c := range row.Codes {
				switch {
				case mentioned[c.Name]:
					add(&named, row, c.Name)
				case slices.Contains(general[a.Status], c.Name) && needs(c.Name, op):
					add(&rest, row, c.Name)
				}
			}
		}
	}
	named = append(named, rest...)
	if len(named) == 0 {
		named = []cause{{Meaning: template.HTML(template.HTMLEscapeString(a.Text))}} //nolint:gosec // escaped
	}
	return named
}
