package app_test

import (
	"flag"
	"os"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// TestMain keeps the inner loop quick: a plain `go test ./...` leaves out the
// long tests of the whole program, and runs those on both stores on SQLite; `make
// test`, and so CI, runs all. What is asked for by name runs whole in any case.
func TestMain(m *testing.M) {
	flag.Parse()
	if fulltest.Inner() {
		long := "TestHardening|TestSimulation|TestKilled|TestKills|TestFanOut|TestStockOPA|TestTemplate|TestConvergence|TestCredentialEnds|TestGateways|TestAssisted|TestClassification|TestStory|TestPolicyCommand|TestCIExamples|TestCode|TestPull|TestPoliciesAsCodeGuide|TestWorkbench|TestReplay|TestImpactGate|TestRepository|TestWebhook|TestEditor|TestDeployment|TestNoisy|TestShareOf|TestStoreThat|TestLibraries" +
			"|TestLibraryReplayed|TestDecisionsSurvive|TestNothingForeign|TestMaxStale|TestCutOff|TestOPAParity|TestSimulateAgrees|TestDiscoveryIsBounded"
		if err := flag.Set("test.skip", long); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	apptest.Clean()
	os.Exit(code)
}
