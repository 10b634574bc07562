package lsp

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// Bounds on what is read of the editor's folders in search of libraries.
const (
	maxScanned = 20_000 // files and folders looked at
	maxShelf   = 500
	maxLibrary = 1 << 20 // of one library's source, in bytes
)

// folder is one that the editor has open.
type folder struct {
	URI string `json:"uri"`
}

// rootsOf are the paths of the editor's folders; rootURI counts where the editor
// names none.
func rootsOf(folders []folder, rootURI string) []string {
	if len(folders) == 0 && rootURI != "" {
		folders = []folder{{rootURI}}
	}
	var roots []string
	for _, f := range folders {
		if path, ok := filePath(f.URI); ok {
			roots = append(roots, path)
		}
	}
	return roots
}

// filePath is the path of a file: URI.
func filePath(uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "", false
	}
	return filepath.FromSlash(u.Path), true
}

// shelf are the libraries that a document may import: those that are open, then
// those in the editor's folders, then the server's. Of one package the first counts.
func (s *Server) shelf(ctx context.Context) []rego.Library {
	s.mu.Lock()
	stale := s.stale
	s.stale = false
	s.mu.Unlock()
	if stale {
		s.stored = libraries(ctx, s.roots) // the analyst's alone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []rego.Library
	for _, d := range s.documents {
		if l := (rego.Library{Name: d.uri, Source: d.text}); l.Package() != "" {
			open = append(open, l)
		}
	}
	slices.SortFunc(open, func(a, b rego.Library) int { return strings.Compare(a.Name, b.Name) })
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Concat(open, s.stored, s.knowledge.Libraries), func(l rego.Library) bool {
		again := seen[l.Package()]
		seen[l.Package()] = true
		return again
	})
}

// libraries reads those below the roots. What cannot be read is passed over: the
// editor's folders may be anything.
func libraries(ctx context.Context, roots []string) []rego.Library {
	var found []rego.Library
	left := maxScanned
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error { // never fails but to end
			left--
			switch {
			case left < 0 || len(found) >= maxShelf || ctx.Err() != nil:
				return filepath.SkipAll
			case err != nil:
				return nil
			case d.IsDir():
				if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "node_modules") {
					return filepath.SkipDir
				}
				return nil
			case !d.Type().IsRegular() || !strings.HasSuffix(path, ".rego"):
				return nil
			}
			if info, err := d.Info(); err != nil || info.Size() > maxLibrary {
				return nil
			}
			text, err := os.ReadFile(path)
			if l := (rego.Library{Name: path, Source: string(text)}); err == nil && l.Package() != "" {
				found = append(found, l)
			}
			return nil
		})
	}
	return found
}

// recheck puts every open document before the analyst: what they import may have
// changed. The caller holds s.mu.
func (s *Server) recheck() {
	s.stale = true
	for _, d := range s.documents {
		s.changed(d)
	}
}

// filesChanged is workspace/didChangeWatchedFiles.
func (s *Server) filesChanged(context.Context, json.RawMessage) (any, *rpcError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recheck()
	return nil, nil
}
