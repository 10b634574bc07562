package gitpack

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's own digest
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
)

// builder builds packs.
type builder struct {
	t     testing.TB
	store *memory.Storage
	ids   []plumbing.Hash
}

func newBuilder(t testing.TB) *builder { return &builder{t: t, store: memory.NewStorage()} }

type encoder interface {
	Encode(o plumbing.EncodedObject) error
}

func (b *builder) add(o encoder) plumbing.Hash {
	b.t.Helper()
	e := b.store.NewEncodedObject()
	if err := o.Encode(e); err != nil {
		b.t.Fatal(err)
	}
	return b.put(e)
}

func (b *builder) put(e plumbing.EncodedObject) plumbing.Hash {
	b.t.Helper()
	id, err := b.store.SetEncodedObject(e)
	if err != nil {
		b.t.Fatal(err)
	}
	b.ids = append(b.ids, id)
	return id
}

func (b *builder) blob(text string) plumbing.Hash {
	e := b.store.NewEncodedObject()
	e.SetType(plumbing.BlobObject)
	w, err := e.Writer()
	if err != nil {
		b.t.Fatal(err)
	}
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.put(e)
}

func (b *builder) tree(entries ...object.TreeEntry) plumbing.Hash {
	return b.add(&object.Tree{Entries: entries})
}

func (b *builder) commit(tree plumbing.Hash) plumbing.Hash {
	return b.add(&object.Commit{TreeHash: tree, Message: "x"})
}

func (b *builder) pack() []byte {
	b.t.Helper()
	var out bytes.Buffer
	if _, err := packfile.NewEncoder(&out, b.store, false).Encode(b.ids, 0); err != nil {
		b.t.Fatal(err)
	}
	return out.Bytes()
}

// sample returns a pack with a commit of controls, other files and a link.
func sample(t testing.TB) (pack []byte, commit plumbing.Hash) {
	b := newBuilder(t)
	control, test, other, link, binary := b.blob("package a\n"), b.blob("package a_test\n"), b.blob("readme"), b.blob("/etc/passwd"), b.blob("\xff\xfe")
	dir := b.tree(
		object.TreeEntry{Name: "a.rego", Mode: filemode.Regular, Hash: control},
		object.TreeEntry{Name: "a_test.rego", Mode: filemode.Executable, Hash: test},
		object.TreeEntry{Name: "bad.rego", Mode: filemode.Regular, Hash: binary},
		object.TreeEntry{Name: "gatehouse.yaml", Mode: filemode.Regular, Hash: other},
		object.TreeEntry{Name: "link.rego", Mode: filemode.Symlink, Hash: link},
	)
	root := b.tree(
		object.TreeEntry{Name: "README.md", Mode: filemode.Regular, Hash: other},
		object.TreeEntry{Name: "controls", Mode: filemode.Dir, Hash: dir},
		object.TreeEntry{Name: "other", Mode: filemode.Dir, Hash: dir},
	)
	commit = b.commit(root)
	return b.pack(), commit
}

func names(files []File) string {
	var out []string
	for _, f := range files {
		out = append(out, f.Path)
	}
	return strings.Join(out, " ")
}

func TestUnpack(t *testing.T) {
	pack, commit := sample(t)
	for name, c := range map[string]struct {
		r    Request
		want string
	}{
		"all":         {Request{}, "controls/a.rego controls/a_test.rego controls/gatehouse.yaml other/a.rego other/a_test.rego other/gatehouse.yaml"},
		"of a folder": {Request{Prefix: "/controls/"}, "controls/a.rego controls/a_test.rego controls/gatehouse.yaml"},
		"by path":     {Request{Paths: []string{"README.md", "other/a.rego"}}, "README.md other/a.rego"},
		"no folder":   {Request{Prefix: "contr"}, ""},
	} {
		c.r.Pack, c.r.Commit = pack, commit.String()
		got, err := Unpack(c.r)
		if err != nil || names(got) != c.want {
			t.Errorf("%s: %s, %v", name, names(got), err)
		}
	}
	if _, err := Unpack(Request{Pack: pack, Commit: strings.Repeat("1", 40)}); !errors.Is(err, ErrNoCommit) {
		t.Errorf("another commit: %v", err)
	}
	for _, p := range []string{"controls/link.rego", "controls/bad.rego", "../x.rego", "controls"} {
		if got, err := Unpack(Request{Pack: pack, Commit: commit.String(), Paths: []string{p}}); err == nil {
			t.Errorf("%s is taken: %v", p, got)
		}
	}
	for n := range len(pack) {
		broken := bytes.Clone(pack)
		broken[n] ^= 0x55
		if got, err := Unpack(Request{Pack: broken, Commit: commit.String()}); err == nil && len(got) != 6 {
			t.Errorf("byte %d turned gives %s", n, names(got))
		}
	}
}

// TestBombs: trees that expand to far more than their own size stop at a limit.
func TestBombs(t *testing.T) {
	b := newBuilder(t)
	at := b.tree(object.TreeEntry{Name: "x.rego", Mode: filemode.Regular, Hash: b.blob("package x\n")})
	for range 30 {
		var entries []object.TreeEntry
		for i := range 10 {
			entries = append(entries, object.TreeEntry{Name: fmt.Sprintf("d%d", i), Mode: filemode.Dir, Hash: at})
		}
		at = b.tree(entries...)
	}
	commit := b.commit(at)
	if _, err := Unpack(Request{Pack: b.pack(), Commit: commit.String()}); err == nil {
		t.Error("10^30 files are taken")
	}
	b = newBuilder(t)
	big := b.blob(strings.Repeat("#", maxFile+1))
	commit = b.commit(b.tree(object.TreeEntry{Name: "x.rego", Mode: filemode.Regular, Hash: big}))
	if _, err := Unpack(Request{Pack: b.pack(), Commit: commit.String()}); err == nil {
		t.Error("a large file is taken")
	}
	if _, err := Unpack(Request{Pack: make([]byte, MaxPack+1)}); err == nil {
		t.Error("a large pack is taken")
	}
	// The header claims four thousand million objects.
	lying := append([]byte("PACK\x00\x00\x00\x02"), binary.BigEndian.AppendUint32(nil, 1<<32-1)...)
	sum := sha1.Sum(lying) //nolint:gosec // git's own digest
	if _, err := Unpack(Request{Pack: append(lying, sum[:]...), Commit: commit.String()}); err == nil {
		t.Error("an empty pack is taken")
	}
}

func FuzzUnpack(f *testing.F) {
	pack, commit := sample(f)
	f.Add(pack, commit.String(), "")
	f.Add(pack[:len(pack)/2], commit.String(), "controls")
	f.Add([]byte("PACK\x00\x00\x00\x02\xff\xff\xff\xff"), "", "")
	f.Fuzz(func(t *testing.T, pack []byte, commit, prefix string) {
		files, err := Unpack(Request{Pack: pack, Commit: commit, Prefix: prefix})
		if err == nil && len(files) > MaxFiles {
			t.Error("too many files")
		}
	})
}
