package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
)

// maxBytes is the maximum size of all files together, in bytes. One request to the server has this
// limit.
const maxBytes = 10 << 20

// Load reads the controls, tests and manifests in paths. A path is a file or a directory, which is
// read with its subdirectories. In directories it skips hidden directories, node_modules and
// symbolic links. The paths of the files are relative to the working directory. For a file outside
// of it, the path is relative to the given directory.
func Load(paths []string) ([]controlfile.File, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, usage("find the working directory: %w", err)
	}
	l := loader{here: here, seen: map[string]bool{}}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, usage("%w", err)
		}
		if !info.IsDir() {
			if !controlfile.IsControlFile(filepath.ToSlash(p)) {
				return nil, usage("%s is neither a .rego file nor a gatehouse.yaml", p)
			}
			if err := l.file(filepath.Dir(p), p); err != nil {
				return nil, err
			}
			continue
		}
		if err := l.directory(p); err != nil {
			return nil, err
		}
	}
	if len(l.files) == 0 {
		return nil, usage("there are no .rego files in %s", strings.Join(paths, ", "))
	}
	return l.files, nil
}

type loader struct {
	here  string
	files []controlfile.File
	seen  map[string]bool
	size  int64
}

func (l *loader) directory(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return usage("%w", err)
		case d.IsDir():
			if name := d.Name(); p != dir && (strings.HasPrefix(name, ".") || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		case d.Type().IsRegular() && controlfile.IsControlFile(filepath.ToSlash(p)):
			return l.file(dir, p)
		default:
			return nil
		}
	})
}

// file reads one file. If it is outside of the working directory, its path is relative to base.
func (l *loader) file(base, p string) error {
	name, err := l.name(base, p)
	if err != nil {
		return usage("%s: %w", p, err)
	}
	if l.seen[name] {
		return nil
	}
	l.seen[name] = true
	info, err := os.Stat(p)
	if err != nil {
		return usage("%w", err)
	}
	if l.size += info.Size(); l.size > maxBytes || len(l.files) == controlfile.MaxFiles {
		return usage("more than %d files or %d bytes: name fewer paths", controlfile.MaxFiles, maxBytes)
	}
	text, err := os.ReadFile(p)
	if err != nil {
		return usage("%w", err)
	}
	if !utf8.Valid(text) {
		return usage("%s is not UTF-8", p)
	}
	l.files = append(l.files, controlfile.File{Path: name, Content: string(text)})
	return nil
}

func (l *loader) name(base, p string) (string, error) {
	full, err := filepath.Abs(p)
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(l.here, full); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel), nil
	}
	rel, err := filepath.Rel(base, p)
	return filepath.ToSlash(rel), err
}

// save writes files below dir, each completely or not at all. If some exist with other content and
// force is not set, it writes nothing and returns an error that names them.
func save(dir string, files []controlfile.File, force bool) (written []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, usage("%w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, usage("%w", err)
	}
	defer root.Close() //nolint:errcheck // a directory, open to read
	var kept []string
	var changed []controlfile.File
	for _, f := range files {
		there, err := root.ReadFile(filepath.FromSlash(f.Path))
		switch {
		case err == nil && string(there) == f.Content:
		case err == nil && !force:
			kept = append(kept, f.Path)
		case err == nil || errors.Is(err, fs.ErrNotExist):
			changed = append(changed, f)
		default:
			return nil, usage("%w", err)
		}
	}
	if len(kept) > 0 {
		return nil, usage("these files differ from the service and would be lost, --force overwrites them: %s", strings.Join(kept, ", "))
	}
	for _, f := range changed {
		name := filepath.FromSlash(f.Path)
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return written, usage("%w", err)
		}
		if err := root.WriteFile(name+".new", []byte(f.Content), 0o644); err != nil {
			return written, usage("%w", err)
		}
		if err := root.Rename(name+".new", name); err != nil {
			return written, usage("%w", err)
		}
		written = append(written, f.Path)
	}
	return written, nil
}

// errNothing is the error if the service has no controls to pull.
var errNothing = fmt.Errorf("the service has no control there")
