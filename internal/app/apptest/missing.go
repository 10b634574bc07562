package apptest

import (
	"os"
	"testing"
)

// Missing skips a test for want of a program; in CI (CI=true or
// GATEHOUSE_TEST_REQUIRE=all) that is a failure.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all" {
		t.Fatal(what + ", which this test needs")
	}
	t.Skip(what)
}
