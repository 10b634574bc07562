// Package contract compares versions of the API's OpenAPI document: what a client
// of the earlier version would miss in the later one, and what is new. It keeps the
// documents that releases were made with.
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

// released holds one document a release, packed, named for its api_version. Those of a
// family are in a directory with its name.
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

// Released are the documents of a family (empty: of all other operations) that releases
// were made with, the oldest first.
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
	// APIVersion is the version of the contract (semantic), SchemaVersion that of
	// the document's shape, for generators of code.
	APIVersion, SchemaVersion string
	// DeprecationPolicy says how breaking changes are announced.
	DeprecationPolicy string
}

// MetadataOf reads the metadata of a document.
func MetadataOf(doc Document) Metadata {
	text := func(name string) string {
		s, _ := lookup(doc, "info", "x-gatehouse-contract", name).(string)
		return s
	}
	return Metadata{APIVersion: text("api_version"), SchemaVersion: text("schema_version"), DeprecationPolicy: text("deprecation_policy")}
}

// Version is the api_version of a document.
func Version(doc Document) string { return MetadataOf(doc).APIVersion }

func numbers(version string) []int {
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part) // a test holds the names of the files to their versions
		out = append(out, n)
	}
	return out
}

// lookup follows names down a tree; nil where it ends early.
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
