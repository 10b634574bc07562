// Package gitpack extracts the requested files of one commit from a git packfile. The
// pack comes from a repository that a tenant names, and its objects may decompress to
// any size. So this runs in a process with a memory limit (package worker).
package gitpack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
)

// Limits on what is read.
const (
	// MaxPack is the largest size of a pack, in bytes.
	MaxPack = 16 << 20
	// MaxFiles and MaxBytes are the largest number and total size of the extracted files.
	MaxFiles = 1000
	MaxBytes = 8 << 20
	// maxFile is the largest size of a control's source, in bytes.
	maxFile    = 1 << 20
	maxEntries = 200_000 // a small pack can name one subtree many times
	maxDepth   = 64
)

// Request says which files of a pack to extract.
type Request struct {
	Pack []byte `json:"pack"`
	// Commit is the full id of a commit, or of a tag that points to one.
	Commit string `json:"commit"`
	// Prefix is the folder whose Rego files and gatehouse.yaml files are extracted;
	// empty: the whole tree. If there are Paths, only these files are extracted instead.
	Prefix string   `json:"prefix,omitempty"`
	Paths  []string `json:"paths,omitempty"`
	// Largest is the largest size of a file in bytes, at most MaxBytes; 0: that of a
	// control's source.
	Largest int64 `json:"largest,omitempty"`
}

// File is one file of the commit.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// ErrNoCommit means that the pack does not contain the commit.
var ErrNoCommit = errors.New("the repository does not provide this commit")

// Unpack returns the files that r selects, sorted by path. It skips links, submodules and
// files that are not UTF-8, unless they are in Paths: then it returns an error. It also
// returns an error if a path does not exist or a limit is exceeded.
func Unpack(r Request) ([]File, error) {
	if len(r.Pack) > MaxPack {
		return nil, fmt.Errorf("the pack is larger than %d bytes", MaxPack)
	}
	store := memory.NewStorage()
	if err := packfile.UpdateObjectStorage(store, bytes.NewReader(r.Pack)); err != nil {
		return nil, fmt.Errorf("the pack cannot be read: %w", err)
	}
	if !plumbing.IsHash(r.Commit) {
		return nil, ErrNoCommit
	}
	commit, err := commitOf(store, plumbing.NewHash(r.Commit))
	if err != nil {
		return nil, ErrNoCommit
	}
	tree, err := commit.Tree()
	if err != nil {
		return nil, ErrNoCommit
	}
	u := &unpacking{Request: r, store: store}
	if err := u.walk(tree, "", 0); err != nil {
		return nil, err
	}
	for _, p := range r.Paths {
		if !slices.ContainsFunc(u.files, func(f File) bool { return f.Path == p }) {
			return nil, fmt.Errorf("the commit has no file %q", p)
		}
	}
	slices.SortFunc(u.files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return u.files, nil
}

// commitOf returns the commit with an id, or the one that an annotated tag points to. It
// follows at most four tags.
func commitOf(store *memory.Storage, id plumbing.Hash) (*object.Commit, error) {
	for range 4 {
		tag, err := object.GetTag(store, id)
		if err != nil {
			break
		}
		id = tag.Target
	}
	return object.GetCommit(store, id)
}

type unpacking struct {
	Request
	store   *memory.Storage
	files   []File
	entries int
	bytes   int64
}

func (u *unpacking) walk(tree *object.Tree, dir string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("folders are nested over %d levels", maxDepth)
	}
	for _, e := range tree.Entries {
		if u.entries++; u.entries > maxEntries {
			return fmt.Errorf("the commit has more than %d entries", maxEntries)
		}
		name := path.Join(dir, e.Name)
		switch e.Mode {
		case filemode.Dir:
			if !u.mayContain(name) {
				continue
			}
			sub, err := object.GetTree(u.store, e.Hash)
			if err != nil {
				return fmt.Errorf("the pack lacks a folder: %w", err)
			}
			if err := u.walk(sub, name, depth+1); err != nil {
				return err
			}
		case filemode.Regular, filemode.Executable, filemode.Deprecated:
			if u.selected(name) {
				if err := u.take(name, e.Hash); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// mayContain reports whether a selected file can be below a folder.
func (u *unpacking) mayContain(dir string) bool {
	if len(u.Paths) > 0 {
		return slices.ContainsFunc(u.Paths, func(p string) bool { return strings.HasPrefix(p, dir+"/") })
	}
	prefix := strings.Trim(u.Prefix, "/")
	return prefix == "" || dir == prefix || strings.HasPrefix(dir, prefix+"/") || strings.HasPrefix(prefix, dir+"/")
}

func (u *unpacking) selected(name string) bool {
	if len(u.Paths) > 0 {
		return slices.Contains(u.Paths, name)
	}
	if prefix := strings.Trim(u.Prefix, "/"); prefix != "" && !strings.HasPrefix(name, prefix+"/") {
		return false
	}
	return strings.HasSuffix(name, ".rego") || path.Base(name) == "gatehouse.yaml"
}

func (u *unpacking) take(name string, id plumbing.Hash) error {
	blob, err := object.GetBlob(u.store, id)
	if err != nil {
		return fmt.Errorf("the pack lacks %q: %w", name, err)
	}
	u.bytes += blob.Size
	largest := int64(maxFile)
	if u.Largest > 0 {
		largest = min(u.Largest, MaxBytes)
	}
	switch {
	case blob.Size > largest:
		return fmt.Errorf("%q is larger than %d bytes", name, largest)
	case u.bytes > MaxBytes:
		return fmt.Errorf("the files have more than %d bytes in all", MaxBytes)
	case len(u.files) >= MaxFiles:
		return fmt.Errorf("there are more than %d files", MaxFiles)
	}
	r, err := blob.Reader()
	if err != nil {
		return fmt.Errorf("read %q: %w", name, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, largest+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("read %q: %w", name, err)
	}
	if !utf8.Valid(text) || !utf8.ValidString(name) {
		if len(u.Paths) > 0 {
			return fmt.Errorf("%q is not UTF-8 text", name)
		}
		return nil
	}
	u.files = append(u.files, File{name, string(text)})
	return nil
}
