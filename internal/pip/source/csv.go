package source

import (
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// formatCSV is CSV whose first line names the columns (RFC 4180).
const formatCSV = "csv"

// formatYAML is YAML, for files of git repositories.
const formatYAML = "yaml"

// decode parses an answer in the format of the source.
func (r *run) decode(text string) (value.Value, error) {
	switch r.Format {
	case formatCSV:
		return decodeCSV(text)
	case formatYAML:
		return decodeYAML(text)
	default:
		return decodeJSON(text)
	}
}

func decodeJSON(text string) (value.Value, error) {
	doc, err := value.Decode([]byte(text), value.Limits{Depth: maxDepth, Values: maxValues})
	if err != nil {
		return doc, failf("the answer is not JSON that gatehouse accepts: %s", err.Error())
	}
	return doc, nil
}

// decodeCSV returns an array with an object for each line after the first: its texts by column.
func decodeCSV(text string) (value.Value, error) {
	if !utf8.ValidString(text) {
		return value.Value{}, failf("the answer is not UTF-8")
	}
	lines := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	columns, err := lines.Read()
	if err != nil {
		return value.Value{}, badCSV(err)
	}
	if err := checkColumns(columns); err != nil {
		return value.Value{}, err
	}
	names := 0
	for _, name := range columns {
		names += len(name)
	}
	var records []value.Value
	size := 0
	for {
		cells, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return value.Array(records...), nil
		}
		if err != nil {
			return value.Value{}, badCSV(err)
		}
		members := make([]value.Member, len(cells))
		size += names
		for i, cell := range cells {
			members[i] = value.Member{Key: columns[i], Value: value.String(cell)}
			size += len(cell)
		}
		records = append(records, value.Object(members...))
		switch {
		case len(records) > MaxRecords:
			return value.Value{}, tooMany()
		case size > 4*MaxBytes || len(records)*len(columns) > maxValues: // size counts the names of the columns once for each line
			return value.Value{}, tooLarge()
		}
	}
}

// checkColumns refuses empty names, and names that differ only in case.
func checkColumns(columns []string) error {
	seen := map[string]bool{}
	for i, name := range columns {
		folded := strings.ToLower(name)
		if name == "" {
			return failf("column %d of the CSV has no name in the first line", i+1)
		}
		if seen[folded] {
			return failf("column %d of the CSV has the same name as another, ignoring case", i+1)
		}
		seen[folded] = true
	}
	return nil
}

// badCSV says which line of an answer is not valid CSV. It does not repeat what the line contains.
func badCSV(err error) error {
	at, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case ok && errors.Is(err, csv.ErrFieldCount):
		return failf("line %d of the CSV has another number of columns than the first", at.Line)
	case ok:
		return failf("line %d of the CSV has a quote in the wrong place", at.Line)
	}
	return failf("the CSV is empty: its first line must name the columns")
}
