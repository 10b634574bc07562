// Package fulltest says how much the tests of a run do. A plain `go test ./...` is
// the inner loop: it leaves out what is long. GATEHOUSE_TEST_FULL=1 (`make test`) is
// the full run. CI, and what -run asks for by name, leave nothing out.
package fulltest

import (
	"flag"
	"os"
	"testing"
)

// Run says that this is the full run, where drawn tests make all their rounds.
func Run() bool { return os.Getenv("GATEHOUSE_TEST_FULL") != "" }

// Inner says that this is the inner loop, where long tests are left out and those
// that run on each store run on SQLite alone.
func Inner() bool {
	return inner(os.Getenv("GATEHOUSE_TEST_FULL"), os.Getenv("CI"), named())
}

func inner(full, ci, run string) bool { return full == "" && ci != "true" && run == "" }

// named is the pattern of -run, "" in a program that is not a test.
func named() string {
	if f := flag.Lookup("test.run"); f != nil {
		return f.Value.String()
	}
	return ""
}

// Only skips a long test in the inner loop.
func Only(t testing.TB) {
	t.Helper()
	if Inner() {
		t.Skip("a long test: it runs in `make test`, in CI, and by name")
	}
}

// Rounds is how many rounds a drawn test makes: few, or many in the full run.
func Rounds(few, many int) int {
	if Run() {
		return many
	}
	return few
}
