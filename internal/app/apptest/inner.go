package apptest

import (
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
