// Package contract compares versions of the API's OpenAPI document: what breaks a
// client of the earlier version, and what is new. It contains the documents of the
// releases.
package contract

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// released holds a compressed document for each release, named after its api_version.
// Those of a family are in a directory with the family's name.
//
//go:embed released
var released embed.FS

// Document is a decoded OpenAPI document.
type Document = map[string]any

// Decode reads a document.
func Decode(doc []byte) (Document, error) {
	var tree Document
	err := json.Unmarshal(doc, &tree)
	return tree, err
}

// Released returns the documents of all releases for a family, the oldest first. Without
// a family, they are those of all other operations.
func Released(family string) ([]Document, error) {
	dir := path.Join("released", family)
	files, err := released.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []Document
	for _, f := range files {
		if f.IsDir() {
			continue
		}
		packed, err := released.ReadFile(path.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		plain, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		doc, err := Decode(plain)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		out = append(out, doc)
	}
	slices.SortFunc(out, func(a, b Document) int { return slices.Compare(numbers(Version(a)), numbers(Version(b))) })
	return out, nil
}

// Metadata is info.x-gatehouse-contract of a document.
type Metadata struct {
	// APIVersion is the semantic version of the contract. SchemaVersion is the version
	// of the document's structure, for code generators.
	APIVersion, SchemaVersion string
	// DeprecationPolicy says how breaking changes are announced.
	DeprecationPolicy string
}

// metadataOf reads the metadata of a document.
func metadataOf(doc Document) Metadata {
	text := func(name string) string {
		s, _ := lookup(doc, "info", "x-gatehouse-contract", name).(string)
		return s
	}
	return Metadata{APIVersion: text("api_version"), SchemaVersion: text("schema_version"), DeprecationPolicy: text("deprecation_policy")}
}

// Version returns the api_version of a document.
func Version(doc Document) string { return metadataOf(doc).APIVersion }

func numbers(version string) []int {
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part) // a test checks the versions of the documents
		out = append(out, n)
	}
	return out
}

// lookup follows names down a tree. It returns nil if a name is missing.
func lookup(node any, names ...string) any {
	for _, name := range names {
		m, ok := node.(map[string]any)
		if !ok {
			return nil
		}
		node = m[name]
	}
	return node
}
