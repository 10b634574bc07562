// Package decisions_test holds the tests of the whole program about decisions and what explains them.
package decisions_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }
