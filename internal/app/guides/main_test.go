// Package guides_test holds the tests of the whole program about the pages of docs, pasted into a shell.
package guides_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }
