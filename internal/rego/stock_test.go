package rego_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
)

// What the check takes, a stock OPA must take as a bundle, whichever types its
// own checker gives to a literal: one control that it refuses is a bundle lost.
// The sources are OPA's own cases, as far as a control may be written like that.
func TestStockOPATakesWhatTheCheckTakes(t *testing.T) {
	fulltest.Only(t)
	opa := apptest.OPA(t)
	var list []*rego.Control
	err := fs.WalkDir(testdata.V1, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(testdata.V1, path)
		if err != nil {
			return err
		}
		var set cases.Set
		if err := util.Unmarshal(data, &set); err != nil {
			return err
		}
		for _, tc := range set.Cases {
			for _, source := range tc.Modules {
				if c, issues := rego.Compile(rego.Meta{ID: int64(len(list)), Name: tc.Note, Version: 1}, source); issues == nil {
					list = append(list, c)
				}
			}
		}
		return nil
	})
	if err != nil || len(list) < 700 {
		t.Fatalf("%d controls, %v", len(list), err)
	}
	data, err := bundle.Write(bundle.Spec{Revision: "1", Set: rego.NewSet(rego.SetSpec{Controls: list})})
	errtest.Must(t, err)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	errtest.Must(t, os.WriteFile(file, data, 0o600))
	if out, err := exec.CommandContext(t.Context(), opa, "check", "--max-errors", "50", "-b", file).CombinedOutput(); err != nil {
		t.Errorf("%d controls: %s", len(list), out)
	}
}
