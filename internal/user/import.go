package user

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// maxImport limits the people of one import.
	maxImport = 5000
	// maxImportOffences is how many offences an import reports. Whoever sent what holds
	// more has sent something else: the rest is not read.
	maxImportOffences = 1000
	// maxEntry limits one person of an import, in bytes, as in POST /users.
	maxEntry = 1 << 20
)

// Format is the format of an import.
type Format int

const (
	// CSV has a header: id, email, username, roles (separated by semicolons),
	// department, attributes (a JSON object), and attributes.<name> for texts.
	CSV Format = iota
	// JSONLines has an object a line, with the members of Draft but the password.
	JSONLines
)

// Imported is the result of an import.
type Imported struct {
	DryRun  bool      `json:"dry_run" doc:"Whether nothing was stored."`
	Created int       `json:"created" doc:"How many people were added, or would be."`
	Users   []Arrival `json:"users" nullable:"false" doc:"The people, in the order of their lines."`
}

// Arrival is one person of an import.
type Arrival struct {
	Line     int    `json:"line" doc:"The line of the person; the first one is 1."`
	ID       string `json:"id" doc:"Id of the person; a random id of a dry run is not the later one."`
	Username string `json:"username" doc:"User name."`
}

// entry is one person of an import, before it is checked.
type entry struct {
	line  int
	draft Draft
}

// errDry rolls back the transaction of a dry run.
var errDry = errors.New("user: dry run")

// Import creates many people, all or none. A dry run checks the same and stores nothing. Faults:
// Invalid "import_failed" with each line that cannot be imported and the reason; Forbidden if roles
// exceed the caller's permissions, or the tenant's limit is reached.
func (s *Service) Import(ctx context.Context, sc scope.Scope, format Format, text []byte, dry bool) (Imported, error) {
	var list []entry
	var wrong offences
	if !utf8.Valid(text) {
		wrong.add(1, "", "the text must be valid UTF-8")
	} else if format == CSV {
		list = readCSV(text, &wrong)
	} else {
		list = readLines(text, &wrong)
	}
	if len(list) > maxImport {
		return Imported{}, fault.Newf(fault.TooLarge, "payload_too_large", "an import may have at most %d people", maxImport).With("limit", int64(maxImport))
	}
	if len(list) == 0 && len(wrong) == 0 {
		wrong.add(1, "", "it contains no people")
	}
	people := s.checkImport(sc, list, &wrong)
	if wrong.full() {
		return Imported{}, wrong.err()
	}
	out := Imported{DryRun: dry, Created: len(people), Users: make([]Arrival, len(people))}
	for i, u := range people {
		out.Users[i] = Arrival{list[i].line, u.ID, u.Username}
	}
	var failed error
	if len(wrong) == 0 {
		failed = s.write(ctx, sc, func(tx *db.Tx) error {
			if err := s.insert(ctx, tx, sc, people...); err != nil {
				return err
			}
			if dry {
				return errDry
			}
			return nil
		})
		if failed == nil || errors.Is(failed, errDry) {
			return out, nil
		}
		if !fault.Is(failed, fault.Conflict) {
			return Imported{}, failed
		}
	}
	if err := s.addConflicts(ctx, sc, list, people, &wrong); err != nil {
		return Imported{}, err
	}
	if err := wrong.err(); err != nil {
		return Imported{}, err
	}
	return Imported{}, failed // the person with the same name or id was removed meanwhile
}

// checkImport converts entries to people, and adds to wrong what is invalid in them and which of
// them clash.
func (s *Service) checkImport(sc scope.Scope, list []entry, wrong *offences) []User {
	ids, names := map[string]int{}, map[string]int{}
	people := make([]User, len(list))
	for i, e := range list {
		d := e.draft
		u := s.userOf(d)
		people[i] = u
		wrong.all(e.line, d.check())
		wrong.all(e.line, d.checkSizes())
		if err := checkMayGrant(sc, nil, u.Roles); err != nil {
			wrong.add(e.line, "/roles", fault.Message(err))
		}
		if wrong.full() {
			return people
		}
		if first, taken := ids[u.ID]; taken {
			wrong.add(e.line, "/id", fmt.Sprintf("is also the id of line %d", first))
		}
		ids[u.ID] = e.line
		for _, n := range namesOf(u) {
			name := Fold(n.text)
			if first, taken := names[name]; taken && first != e.line && name != "" {
				wrong.add(e.line, n.pointer, fmt.Sprintf("is also a name of line %d", first))
			}
			names[name] = e.line
		}
	}
	return people
}

// checkSizes checks the limits that the API document has for a single person.
func (d Draft) checkSizes() error {
	var errs []error
	for _, f := range []struct {
		pointer, text string
		most          int
	}{{"/email", d.Email, 254}, {"/username", d.Username, 128}, {"/department", d.Department, 256}} {
		if len([]rune(f.text)) > f.most {
			errs = append(errs, fault.Invalidf(f.pointer, "must have at most %d characters", f.most))
		}
	}
	if len(d.Roles) > 64 {
		errs = append(errs, fault.Invalidf("/roles", "must have at most 64 entries"))
	}
	if d.Password != "" {
		errs = append(errs, fault.Invalidf("/password", "is not imported: people set theirs, or sign in through a provider"))
	}
	return fault.Join(errs...)
}

// addConflicts adds to wrong the people of an import whose id or name is in use.
func (s *Service) addConflicts(ctx context.Context, sc scope.Scope, list []entry, people []User, wrong *offences) error {
	return s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		for i, u := range people {
			if wrong.full() {
				return nil
			}
			if err := addConflict(ctx, tx, u, list[i].line, wrong); err != nil {
				return err
			}
		}
		return nil
	})
}

// addConflict adds to wrong a person of an import whose id or name is in use.
func addConflict(ctx context.Context, tx *db.Tx, u User, line int, wrong *offences) error {
	if _, err := ByID(ctx, tx, u.ID); err == nil {
		wrong.add(line, "/id", "belongs to an existing person")
	} else if !fault.Is(err, fault.NotFound) {
		return err
	}
	for _, n := range namesOf(u) {
		if _, err := selectByName(ctx, tx, Fold(n.text)); err == nil {
			wrong.add(line, n.pointer, "is a name of an existing person")
		} else if !errors.Is(err, db.ErrNoRows) {
			return err
		}
	}
	return nil
}

// nameMember is a member of a person that is a name to sign in with.
type nameMember struct{ pointer, text string }

// namesOf returns the names of a person.
func namesOf(u User) [2]nameMember {
	return [2]nameMember{{"/username", u.Username}, {"/email", u.Email}}
}

// offences are the errors in the lines of an import.
type offences []fault.Detail

func (o *offences) add(line int, pointer, message string) {
	*o = append(*o, fault.Detail{Pointer: fmt.Sprintf("/lines/%d%s", line, pointer), Message: fmt.Sprintf("line %d: %s", line, message)})
}

// all adds each offence of err.
func (o *offences) all(line int, err error) {
	for _, d := range fault.Offences(err) {
		o.add(line, d.Pointer, d.Message)
	}
}

// full reports whether the limit of reported offences is reached.
func (o offences) full() bool { return len(o) >= maxImportOffences }

// err returns the fault for an import with offences; nil if there are none.
func (o offences) err() error {
	if len(o) == 0 {
		return nil
	}
	f := fault.Newf(fault.Invalid, "import_failed", "nobody was imported: %s", o[0].Message)
	f.Details = o[:min(len(o), maxImportOffences)]
	return f
}

// importFull reports whether the rest of an import need not be read, because it has too many people
// or offences already.
func importFull(list []entry, wrong offences) bool { return len(list) > maxImport || wrong.full() }

// readLines reads an import of JSON lines.
func readLines(text []byte, wrong *offences) []entry {
	var list []entry
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if d, err := readPerson(line); err != nil {
			wrong.add(n, "", err.Error())
		} else {
			list = append(list, entry{n, d})
		}
		if importFull(list, *wrong) {
			break
		}
	}
	return list
}

// readPerson reads one line of JSON as strictly as the body of a request.
func readPerson(line []byte) (Draft, error) {
	var d Draft
	if len(line) > maxEntry {
		return d, fmt.Errorf("must have at most %d bytes", maxEntry)
	}
	doc, err := value.Decode(line, value.Limits{})
	if err != nil {
		return d, fmt.Errorf("is not valid JSON: %w", err)
	}
	if doc.Kind() != value.ObjectKind {
		return d, errors.New("must be a JSON object")
	}
	doc.Each(func(name string, member value.Value) bool {
		switch {
		case !slices.Contains(members(), name) && name != "password": // which is refused later
			err = fmt.Errorf("has the unknown member %q; members are %s", name, strings.Join(members(), ", "))
		case member.IsNull():
			err = fmt.Errorf("must not have null as %s", name)
		}
		return err == nil
	})
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(line, &d); err != nil {
		return d, fmt.Errorf("is not a valid person: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return d, nil
}

// members are those of a person in a line of JSON, and the columns of CSV.
func members() []string {
	return []string{"id", "email", "username", "roles", "department", "attributes"}
}

// readCSV reads an import of CSV (RFC 4180).
func readCSV(text []byte, wrong *offences) []entry {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	header, err := r.Read()
	if err != nil {
		wrong.add(1, "", "must be a header such as id,email,username,roles,department")
		return nil
	}
	seen := map[string]bool{}
	for _, name := range header {
		known := strings.HasPrefix(name, "attributes.") && len(name) > len("attributes.")
		if !known && !slices.Contains(members(), name) || seen[name] {
			wrong.add(1, "", fmt.Sprintf("the column %q is unknown or there twice; columns are id, email, username, roles, department, attributes and attributes.<name>", name))
			return nil
		}
		seen[name] = true
	}
	var list []entry
	for {
		row, err := r.Read()
		if err == io.EOF || importFull(list, *wrong) {
			return list
		}
		if bad, ok := errors.AsType[*csv.ParseError](err); ok {
			wrong.add(bad.Line, "", bad.Err.Error())
			if !errors.Is(err, csv.ErrFieldCount) {
				return list // the following cells cannot be separated reliably
			}
			continue
		}
		line, _ := r.FieldPos(0)
		e := entry{line: line}
		size := 0
		for _, cell := range row {
			size += len(cell)
		}
		if size > maxEntry {
			wrong.add(line, "", fmt.Sprintf("must have at most %d bytes", maxEntry))
			continue
		}
		for i, name := range header {
			if err := e.draft.set(name, row[i]); err != nil {
				wrong.add(line, "/attributes", err.Error())
			}
		}
		list = append(list, e)
	}
}

// set sets a member of a draft from a cell of CSV. An empty cell sets nothing.
func (d *Draft) set(column, cell string) error {
	if cell == "" {
		return nil
	}
	switch column {
	case "id":
		d.ID = cell
	case "email":
		d.Email = cell
	case "username":
		d.Username = cell
	case "department":
		d.Department = cell
	case "roles":
		for role := range strings.SplitSeq(cell, ";") {
			d.Roles = append(d.Roles, strings.TrimSpace(role))
		}
	case "attributes":
		var sent map[string]any
		if doc, err := value.Decode([]byte(cell), value.Limits{}); err != nil {
			return fmt.Errorf("is not valid JSON: %w", err)
		} else if doc.Kind() != value.ObjectKind {
			return errors.New("must be a JSON object")
		}
		if err := json.Unmarshal([]byte(cell), &sent); err != nil {
			return errors.New("must be a JSON object")
		}
		for name, v := range sent {
			d.attribute(name, v)
		}
	default:
		d.attribute(strings.TrimPrefix(column, "attributes."), cell)
	}
	return nil
}

func (d *Draft) attribute(name string, v any) {
	if d.Attributes == nil {
		d.Attributes = map[string]any{}
	}
	d.Attributes[name] = v
}
