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

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Limits on what is read from the editor's folders.
const (
	maxScanned = 20_000   // files and folders
	maxShelf   = 500      // libraries
	maxLibrary = 1 << 20  // bytes of one file
	maxSources = 32 << 20 // bytes of all files together
)

// folder is a folder that is open in the editor.
type folder struct {
	URI string `json:"uri"`
}

// rootsOf returns the paths of the editor's folders. It uses rootURI if the editor names no folder.
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

// filePath returns the path of a file: URI (RFC 8089).
func filePath(uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "", false
	}
	return filepath.FromSlash(u.Path), true
}

// allLibraries returns the libraries that a document may import: the open ones, then those in the
// editor's folders, then the server's. If several have the same package, it returns the first.
func (s *Server) allLibraries(ctx context.Context) []lang.Library {
	s.mu.Lock()
	stale := s.stale
	s.stale = false
	s.mu.Unlock()
	var stored []lang.Library
	if stale {
		stored = libraries(ctx, s.roots)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stale {
		s.stored = stored
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Concat(s.openLibraries(), s.stored, s.knowledge.Libraries), func(l lang.Library) bool {
		again := seen[l.Package()]
		seen[l.Package()] = true
		return again
	})
}

// openLibraries returns the libraries among the open documents, sorted by URI. The caller holds
// s.mu.
func (s *Server) openLibraries() []lang.Library {
	var open []lang.Library
	for _, d := range s.documents {
		if l := (lang.Library{Name: d.uri, Source: d.text}); l.Package() != "" {
			open = append(open, l)
		}
	}
	slices.SortFunc(open, func(a, b lang.Library) int { return strings.Compare(a.Name, b.Name) })
	return open
}

// libraries returns the libraries among the files below the roots.
func libraries(ctx context.Context, roots []string) []lang.Library {
	var found []lang.Library
	for _, f := range sources(ctx, roots) {
		if l := (lang.Library{Name: f.Name, Source: f.Text}); l.Package() != "" && len(found) < maxShelf {
			found = append(found, l)
		}
	}
	return found
}

// sources reads the Rego files below the roots and names them by their paths. It skips
// files that it cannot read.
func sources(ctx context.Context, roots []string) []assist.File {
	var found []assist.File
	left, room := maxScanned, maxSources
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error { // it returns no error
			left--
			switch {
			case left < 0 || room <= 0 || ctx.Err() != nil:
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
			if text, err := os.ReadFile(path); err == nil {
				room -= len(text)
				found = append(found, assist.File{Name: path, Text: string(text)})
			}
			return nil
		})
	}
	return found
}

// recheck queues all open documents and has the folders read again, because libraries may have
// changed. The caller holds s.mu.
func (s *Server) recheck() {
	s.stale = true
	for _, d := range s.documents {
		d.retries = 0
		s.changed(d)
	}
}

// filesChanged handles workspace/didChangeWatchedFiles.
func (s *Server) filesChanged(context.Context, json.RawMessage) (any, *rpcError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recheck()
	return nil, nil
}
