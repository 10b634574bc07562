// Package faults_test holds the tests of the whole program about crashes, outages, full disks.
package faults_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }
