package apptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var buildOPA = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	for _, path := range []string{filepath.Join(root, "bin", "opa"), filepath.Join(os.TempDir(), "gatehouse-test-opa", "opa")} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	out := filepath.Join(os.TempDir(), "gatehouse-test-opa", "opa")
	cmd := exec.Command("go", "build", "-o", out, "github.com/open-policy-agent/opa")
	cmd.Dir = filepath.Join(root, "tools")
	_, err = cmd.CombinedOutput()
	return out, err
})

// OPA is a stock OPA: GATEHOUSE_TEST_OPA, else bin/opa, else one built from
// tools/go.mod. Without one the test fails where everything is required, and is
// skipped elsewhere.
func OPA(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("GATEHOUSE_TEST_OPA"); path != "" {
		return path
	}
	path, err := buildOPA()
	if err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all" {
			t.Fatalf("no stock OPA: %v", err)
		}
		t.Skipf("no stock OPA: %v", err)
	}
	return path
}
