package apptest

import (
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// inner are the names of the tests that the inner loop runs.
var inner sync.Map

// Inner marks a test of the whole program as part of the inner loop. The inner loop skips
// all others when they first need the program, because a start of the server costs a second
// of processor time: mark one test of a topic.
func Inner(t testing.TB) {
	t.Helper()
	inner.Store(t.Name(), true)
}

// skipInInnerLoop skips a test that is not marked, nor part of one that is.
func skipInInnerLoop(t testing.TB) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if _, marked := inner.Load(name); !marked {
		fulltest.Only(t)
	}
}
