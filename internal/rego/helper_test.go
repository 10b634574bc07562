package rego_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
)

func compiledControl(t testing.TB, m rego.Meta, source string) *rego.Control {
	t.Helper()
	c, issues := rego.Compile(m, source)
	if issues != nil {
		t.Fatalf("%v\n%s", issues, source)
	}
	return c
}

func described(d rego.Decision) string {
	res := int64(0)
	if d.Resource != nil {
		res = d.Resource.ID
	}
	return fmt.Sprintf("%s res=%d path=%s rev=%d n=%d err=%v", d.AppendJSON(nil), res, d.Path, d.Revision, d.Considered, d.Err)
}

// readBundle reads a bundle with no set known beforehand.
func readBundle(data []byte) (*bundle.Bundle, error) { return bundle.Reader{}.Read(data) }

// tarNames lists the files of a bundle, in their order.
func tarNames(t testing.TB, data []byte) (names []string) {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	errtest.Must(t, err)
	for in := tar.NewReader(zip); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		errtest.Must(t, err)
		names = append(names, h.Name)
	}
}
