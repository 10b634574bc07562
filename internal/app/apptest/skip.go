package apptest

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// inner has the names of the tests that the inner loop runs.
var inner sync.Map

// Inner marks a test of the whole program as part of the inner loop. All other tests are skipped
// there when they first need the program, because starting a server costs a second of processor
// time. Mark one test of each topic.
func Inner(t testing.TB) {
	t.Helper()
	inner.Store(t.Name(), true)
}

// skipInInnerLoop skips a test in the inner loop, unless it or its parent is marked.
func skipInInnerLoop(t testing.TB) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if _, marked := inner.Load(name); !marked {
		fulltest.Only(t)
	}
}

// SkipMissing skips a test because a program is missing. If CI=true or GATEHOUSE_TEST_REQUIRE=all, it
// fails the test.
func SkipMissing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all" {
		t.Fatal(what + ", which this test needs")
	}
	t.Skip(what)
}
