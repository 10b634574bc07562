package apptest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// Unpacked returns the text of all files of a bundle.
func Unpacked(t *testing.T, bundle []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(bundle))
	errtest.Must(t, err)
	var all strings.Builder
	for files := tar.NewReader(z); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		errtest.Must(t, err)
		text, err := io.ReadAll(files)
		errtest.Must(t, err)
		all.WriteString(header.Name + "\n" + string(text) + "\n")
	}
}
