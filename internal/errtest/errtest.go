// Package errtest shortens the checks of errors in tests.
package errtest

// Must fails the test at once if err is not nil.
func Must(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Of returns the error of a call whose other result does not matter to the test.
func Of[T any](_ T, err error) error { return err }

// TB is the part of testing.TB that Must needs. The tests of package rapid have it, too.
type TB interface {
	Helper()
	Fatal(args ...any)
}
