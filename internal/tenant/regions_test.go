package tenant

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestLoadRegions: the stores of regions are read from JSON or a file. Anything else is refused,
// and no error shows a password.
func TestLoadRegions(t *testing.T) {
	want := map[string]db.Region{"us-east-1": {Dir: "/data/us"}, "eu-west-1": {URL: "postgres://gh:hunter2@db/eu"}}
	good := `{"us-east-1": "/data/us", "eu-west-1": "postgres://gh:hunter2@db/eu"}`
	file := filepath.Join(t.TempDir(), "regions.json")
	errtest.Must(t, os.WriteFile(file, []byte(good+"\n"), 0o600))
	for _, text := range []string{good, " " + good + "\n", file} {
		if got, err := LoadRegions(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("LoadRegions(%s) = %v, %v, want both regions", text, got, err)
		}
	}
	for _, text := range []string{"", "  "} {
		if got, err := LoadRegions(text); err != nil || len(got) != 0 {
			t.Errorf("LoadRegions(%q) = %v, %v, want none", text, got, err)
		}
	}
	for text, part := range map[string]string{
		`{"eu-west-9": "postgres://gh:hunter2@db/eu"}`:          "is not a region",
		`{"eu-west-1": "mysql://gh:hunter2@db/eu"}`:             "not a postgres:// URL",
		`{"eu-west-1": "postgres://gh:hunter2@db:x/eu"}`:        "not a postgres:// URL",
		`{"eu-west-1": {"url": "postgres://gh:hunter2@db/eu"}}`: "must be a text",
		`{"eu-west-1": ""}`:                               "is needed",
		`{"eu-west-1": "/a", "eu-west-1": "/b"}`:          "twice",
		`{"eu-west-1": "postgres://gh:hunter2@db/eu"`:     "not valid JSON",
		`{"eu-west-1": "postgres://gh:hunter2@db/eu"} {}`: "text after",
		`{"eu-west-1": "postgres://gh:hunter2@db/eu",}`:   "JSON",
		`postgres://gh:hunter2@db/eu`:                     "JSON object or the name of a file",
		filepath.Join(t.TempDir(), "missing"):             "no such file",
	} {
		got, err := LoadRegions(text)
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("LoadRegions(%s) = %v, %v, want an error with %q and no password", text, got, err, part)
		}
	}
}
