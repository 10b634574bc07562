package source

import (
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// formatCSV is the format of answers whose first line names the columns (RFC 4180).
const formatCSV = "csv"

// formatYAML is the format of YAML files.
const formatYAML = "yaml"

// decode reads an answer in the format of the source.
func (r *run) decode(text string) (value.Value, error) {
	if r.Format == formatCSV {
		return decodeCSV(text)
	}
	if r.Format == formatYAML {
		return decodeYAML(text)
	}
	return decodeJSON(text)
}

func decodeJSON(text string) (value.Value, error) {
	doc, err := value.Decode([]byte(text), value.Limits{Depth: maxDepth, Values: maxValues})
	if err != nil {
		return doc, failf("the answer is not JSON that gatehouse accepts: %s", err.Error())
	}
	return doc, nil
}

// decodeCSV makes an array of objects, one for each line: the texts by the names of their columns.
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
		case size > 4*MaxBytes || len(records)*len(columns) > maxValues: // names count once a line
			return value.Value{}, tooLarge()
		}
	}
}

// checkColumns refuses names that would not be different members.
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

// badCSV says in which line an answer is no CSV, without what it contains.
func badCSV(err error) error {
	var at *csv.ParseError
	switch {
	case errors.As(err, &at) && errors.Is(err, csv.ErrFieldCount):
		return failf("line %d of the CSV has another number of columns than the first", at.Line)
	case errors.As(err, &at):
		return failf("line %d of the CSV has a quote in the wrong place", at.Line)
	}
	return failf("the CSV is empty: its first line must name the columns")
}
