package controlfile

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Written is a control for Write. If Path is empty, Write puts the control into a directory of its
// own, named after the control.
type Written struct {
	Path, Name, Description, Status, Source string
	// Resource and Bouncer are its links. The zero value means none.
	Resource ResourceName
	Bouncer  string
	Cases    []WrittenCase
	// HiddenCases is how many test cases are not in Cases, because the caller may not see them.
	HiddenCases int
}

// ResourceName identifies a resource by its name and, if needed, its type and path.
type ResourceName struct {
	Name string `yaml:"name"`
	Type string `yaml:"type,omitempty"`
	Path string `yaml:"path,omitempty"`
}

// WrittenCase is an inline test case.
type WrittenCase struct {
	Name     string         `yaml:"name"`
	Input    map[string]any `yaml:"input"`
	Data     map[string]any `yaml:"data,omitempty"`
	Expected bool           `yaml:"expected"`
}

// entry is a control in a manifest. Its members are written in this order.
type entry struct {
	File        string        `yaml:"file,omitempty"`
	Name        string        `yaml:"name"`
	Description string        `yaml:"description,omitempty"`
	Status      string        `yaml:"status"`
	Resource    *ResourceName `yaml:"resource"`
	Bouncer     *string       `yaml:"bouncer"`
	Tests       []WrittenCase `yaml:"tests,omitempty"`
	HiddenTests int           `yaml:"hidden_tests,omitempty"`
}

// Write returns the files of controls: the modules, and one manifest for each directory. Read reads
// them as the same controls. A control whose path is not allowed or is taken gets a path that is
// made from its name.
func Write(controls []Written) ([]File, error) {
	taken := map[string]bool{}
	dirs := map[string][]entry{}
	var files []File
	for _, c := range controls {
		p := c.Path
		if p == "" || badPath(p) != "" || taken[p] {
			p = freePath(c.Name, taken)
		}
		taken[p] = true
		files = append(files, File{Path: p, Content: c.Source})
		e := entry{File: path.Base(p), Name: c.Name, Description: c.Description, Status: c.Status, Tests: c.Cases, HiddenTests: c.HiddenCases}
		if c.Resource.Name != "" {
			e.Resource = &c.Resource
		}
		if c.Bouncer != "" {
			e.Bouncer = &c.Bouncer
		}
		dirs[path.Dir(p)] = append(dirs[path.Dir(p)], e)
	}
	for dir, entries := range dirs {
		text, err := manifestText(entries)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", path.Join(dir, manifestName), err)
		}
		files = append(files, File{Path: path.Join(dir, manifestName), Content: text})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// manifestText returns the text of a directory's manifest.
func manifestText(entries []entry) (string, error) {
	var doc any
	if len(entries) == 1 {
		entries[0].File = ""
		doc = entries[0]
	} else {
		doc = struct {
			Controls []entry `yaml:"controls"`
		}{entries}
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(doc); err != nil {
		return "", err
	}
	return out.String(), enc.Close()
}

// freePath returns a path for a control that is not taken: <slug>/<slug>.rego.
func freePath(name string, taken map[string]bool) string {
	slug := slugOf(name)
	for n := 1; ; n++ {
		try := slug
		if n > 1 {
			try = fmt.Sprintf("%s-%d", slug, n)
		}
		p := try + "/" + try + controlSuffix
		if !taken[p] {
			return p
		}
	}
}

// slugOf converts a name to a file name of lower-case letters, digits and dashes.
func slugOf(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= 60 {
			break
		}
	}
	slug := strings.Trim(b.String(), "-")
	if slug == "" || strings.HasSuffix(slug+controlSuffix, "_test.rego") {
		slug = "control"
	}
	return slug
}
