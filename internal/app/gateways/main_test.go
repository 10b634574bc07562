// Package gateways_test holds the tests of the whole program about gateways in front of applications, and AI traffic.
package gateways_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }
