package apptest

import (
	"os"
	"testing"
)

// SkipMissing skips a test because a program is missing. If CI=true or GATEHOUSE_TEST_REQUIRE=all, it
// fails the test.
func SkipMissing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all" {
		t.Fatal(what + ", which this test needs")
	}
	t.Skip(what)
}
