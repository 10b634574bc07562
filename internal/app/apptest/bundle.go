package apptest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
)

// Unpacked returns the text of all files of a bundle.
func Unpacked(t *testing.T, bundle []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(bundle))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for files := tar.NewReader(z); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(header.Name + "\n" + string(text) + "\n")
	}
}
