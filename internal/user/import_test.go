package user

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestImportIsReadInBounds: an invalid or too large import is read only as far as its refusal
// needs.
func TestImportIsReadInBounds(t *testing.T) {
	for _, c := range []struct {
		format Format
		text   string
	}{
		{CSV, "id,email,username\n" + strings.Repeat("a\n", 100_000)},
		{CSV, "id,email,username\n" + strings.Repeat("a,b,c\n", 100_000)},
		{CSV, "id,email,username\n" + strings.Repeat(",,\n", 100_000)},
		{CSV, "attributes\n" + strings.Repeat("{\n", 100_000)},
		{JSONLines, strings.Repeat("x\n", 100_000)},
		{JSONLines, strings.Repeat("{}\n", 100_000)},
		{JSONLines, strings.Repeat("{\"id\": null}\n", 100_000)},
	} {
		var wrong offences
		read := readLines
		if c.format == CSV {
			read = readCSV
		}
		list := read([]byte(c.text), &wrong)
		if len(list) > maxImport+1 || len(wrong) > maxImportOffences+1 || len(list)+len(wrong) < maxImportOffences {
			t.Errorf("import of %.40q reads %d people and %d offences, want at most %d and %d", c.text, len(list), len(wrong), maxImport+1, maxImportOffences+1)
		}
	}
}

// TestImportAgainstStoredPeople: if a stored person has the same id or name, the import adds nobody
// and names the line.
func TestImportAgainstStoredPeople(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s, _ := people(t, c)
		sc := as(scope.DefaultTenant, RoleAdmin)
		mustCreate(t, s, sc, Draft{ID: "a", Username: "ann", Email: "ann@example.com"})
		var text strings.Builder
		for i := range 300 { // more rows than one statement takes
			text.WriteString("p" + strconv.Itoa(i) + ",p" + strconv.Itoa(i) + "@example.com,per" + strconv.Itoa(i) + "\n")
		}
		for line, want := range map[string]string{"a,x@example.com,x": "/lines/302/id", "x,ANN@example.com,x": "/lines/302/email", "x,x@example.com,Ann": "/lines/302/username"} {
			_, err := s.Import(t.Context(), sc, CSV, []byte("id,email,username\n"+text.String()+line+"\n"), false)
			if list := fault.Offences(err); !fault.Is(err, fault.Invalid) || len(list) != 1 || list[0].Pointer != want {
				t.Errorf("import of %s: got %v, want one offence at %s", line, err, want)
			}
		}
		for range 20 {
			_, err := s.Import(t.Context(), sc, CSV, []byte("id,email,username\nx,ann@example.com,ann\ny,ann@example.com,ann\n"), false)
			list := fault.Offences(err)
			for i, want := range []string{"/lines/3/username", "/lines/3/email", "/lines/2/username", "/lines/2/email"} {
				if len(list) < 4 || list[i].Pointer != want {
					t.Fatalf("import of two people named like a stored one: got %v, want offence %d at %s", list, i, want)
				}
			}
		}
		done, err := s.Import(t.Context(), sc, CSV, []byte("id,email,username\n"+text.String()), false)
		if err != nil || done.Created != 300 {
			t.Fatalf("Import = %d created, %v, want 300", done.Created, err)
		}
		page, err := s.List(t.Context(), sc, Filter{Limit: 1})
		if err != nil || page.Total != 301 {
			t.Errorf("List = %d people, %v, want 301", page.Total, err)
		}
	})
}
