package controlfile

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Written is a control as Write takes it. Path may be empty: it then gets a
// directory of its own, by its name.
type Written struct {
	Path, Name, Description, Status, Source string
	// Resource and Bouncer are what it is linked to; zero for none.
	Resource ResourceName
	Bouncer  string
	Cases    []WrittenCase
}

// ResourceName is what a resource is called.
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

// entry is a control in a manifest, its members in the order in which people read them.
type entry struct {
	File        string        `yaml:"file,omitempty"`
	Name        string        `yaml:"name"`
	Description string        `yaml:"description,omitempty"`
	Status      string        `yaml:"status"`
	Resource    *ResourceName `yaml:"resource"`
	Bouncer     *string       `yaml:"bouncer"`
	Tests       []WrittenCase `yaml:"tests,omitempty"`
}

// Write gives the files of controls: the modules and one manifest a directory.
// Read understands them as the same controls. Two controls that claim one path
// get paths by their names.
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
		e := entry{File: path.Base(p), Name: c.Name, Description: c.Description, Status: c.Status, Tests: c.Cases}
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

// manifestText is the manifest of a directory.
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

// freePath is a path of its own for a control: <slug>/<slug>.rego.
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

// slugOf is a name for files: lower case letters, digits and dashes.
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
