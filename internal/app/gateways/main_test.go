// Package gateways_test tests gateways in front of applications, and AI traffic, with the whole program.
package gateways_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }
