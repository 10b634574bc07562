// Package fulltest decides how much the tests of a run do. A plain `go test ./...` is the inner
// loop, which skips long tests. GATEHOUSE_TEST_FULL=1 (`make test`) is the full run. CI skips
// nothing, nor does a run with -run.
package fulltest

import (
	"flag"
	"os"
	"testing"
)

// Run reports whether this is the full run, in which random tests make all their rounds.
func Run() bool { return os.Getenv("GATEHOUSE_TEST_FULL") != "" }

// Inner reports whether this is the inner loop, which skips long tests and runs the tests of each
// store on SQLite only.
func Inner() bool {
	return inner(os.Getenv("GATEHOUSE_TEST_FULL"), os.Getenv("CI"), named())
}

func inner(full, ci, run string) bool { return full == "" && ci != "true" && run == "" }

// named returns the pattern of -run; "" in a program that is not a test.
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

// Rounds returns how many rounds a random test makes: few, or many in the full run.
func Rounds(few, many int) int {
	if Run() {
		return many
	}
	return few
}
