package app_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

func TestMain(m *testing.M) { apptest.Main(m) }
