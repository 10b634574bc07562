// Package controls_test holds the tests of the whole program about controls: as code, replayed, promoted.
package controls_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }
