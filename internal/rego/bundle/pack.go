package bundle

import (
	"archive/tar"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// text holds the modules of a control in a bundle.
type text struct {
	control, outcome []byte
	libraries        map[string][]byte // by key
	strict           []string          // names of gatehouse.strict that the modules use
	err              error
}

// textOf returns the modules of a control. They are built once for each control, so that a new
// bundle costs work only for the controls that changed.
func textOf(c *rego.Control) (*text, error) {
	t, ok := c.Derive(func() any { return newText(c) }).(*text)
	if !ok {
		return nil, errors.New("the control holds a derived value of another package")
	}
	return t, t.err
}

func newText(c *rego.Control) *text {
	t := &text{}
	id := c.Meta().ID
	if len(c.Broken()) > 0 { // the outcome module alone denies
		pkg := bundlePackage("controls", controlKey(id))
		t.control, t.outcome = []byte("package "+pkg[1:].String()+"\n"), []byte(outcomeModule(c))
		return t
	}
	mod, libs, issues := lang.ParseLinked(c.Source(), c.Libraries())
	if len(issues) > 0 {
		t.err = fmt.Errorf("control %d: line %d: %s", id, issues[0].Line, issues[0].Message)
		return t
	}
	moves := movesOf(id, mod, libs)
	t.control, t.err = t.module(id, moves, mod)
	t.outcome, t.libraries = []byte(outcomeModule(c)), map[string][]byte{}
	for _, l := range libs {
		if t.err == nil {
			t.libraries[libraryKey(l.Library)], t.err = t.module(id, moves, l.Module)
		}
	}
	return t
}

func (t *text) module(control int64, moves []move, mod *ast.Module) ([]byte, error) {
	source, strict, err := rewritten(control, moves, mod)
	if err != nil {
		return nil, err
	}
	// A bundle must not contain a module that OPA refuses.
	if _, err := ast.ParseModuleWithOpts("control.rego", source, ast.ParserOptions{RegoVersion: ast.RegoV1}); err != nil {
		return nil, fmt.Errorf("control %d cannot be written for a bundle: %w", control, err)
	}
	t.strict = append(t.strict, strict...)
	return []byte(source), nil
}

// Packed is the part of a bundle that many enforcement points share, packed once. It is immutable
// and safe for concurrent use.
type Packed struct {
	files    map[string][]byte // by name, for signatures
	archive  []byte            // a tar of the files, with its end marker
	deflated []byte            // the archive, compressed as the last part of a stream
	sum      [32]byte
}

// Pack packs the controls and resources of a set, and the data that the controls refer to.
func Pack(set *rego.Set) (*Packed, error) {
	files, err := bundleFiles(set)
	if err != nil {
		return nil, err
	}
	return pack(files)
}

// PackDocument packs one document at the root of the data, for a discovery bundle of OPA.
func PackDocument(doc value.Value) (*Packed, error) {
	return pack(map[string][]byte{"data.json": doc.AppendJSON(nil)})
}

// compressors are reused, because a new one allocates more than a megabyte.
var compressors = sync.Pool{New: func() any {
	z, _ := flate.NewWriter(nil, flate.DefaultCompression) // the level is valid
	return z
}}

func pack(files map[string][]byte) (*Packed, error) {
	var tarred bytes.Buffer
	out := tar.NewWriter(&tarred)
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writeFile(out, name, files[name]); err != nil {
			return nil, err
		}
		sum := sha256.Sum256(files[name])
		fmt.Fprintf(h, "%d %s %x\n", len(name), name, sum)
	}
	if err := out.Close(); err != nil {
		return nil, fmt.Errorf("pack the bundle: %w", err)
	}
	var small bytes.Buffer
	z := compressors.Get().(*flate.Writer)
	defer compressors.Put(z)
	z.Reset(&small)
	_, err := z.Write(tarred.Bytes())
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("pack the bundle: %w", err)
	}
	return &Packed{files: files, archive: tarred.Bytes(), deflated: small.Bytes(), sum: [32]byte(h.Sum(nil))}, nil
}

func writeFile(out *tar.Writer, name string, data []byte) error {
	h := &tar.Header{Name: "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: time.Unix(0, 0).UTC(), Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
	err := out.WriteHeader(h)
	if err == nil {
		_, err = out.Write(data)
	}
	if err != nil {
		return fmt.Errorf("pack the bundle: %w", err)
	}
	return nil
}

// Sum returns the SHA-256 digest of the content.
func (p *Packed) Sum() [32]byte { return p.sum }

// Size returns about how many bytes p takes in memory.
func (p *Packed) Size() int { return 2*len(p.archive) + len(p.deflated) }

// Bundle returns the bundle of one enforcement point: its own manifest, its signature if key is not
// nil, and the shared part. The pieces are consecutive parts of one gzip stream; only the first and
// the last are newly allocated. roots are the parts of an OPA's data that the bundle owns; nil means
// those of a bundle of controls.
func (p *Packed) Bundle(revision string, meta value.Value, roots []string, key *SigningKey) ([][]byte, error) {
	if roots == nil {
		roots = bundleRoots
	}
	own := map[string][]byte{manifestFile: manifest(revision, meta, roots)}
	if key != nil {
		all := maps.Clone(p.files)
		all[manifestFile] = own[manifestFile]
		sig, err := key.sign(all)
		if err != nil {
			return nil, err
		}
		own[signaturesFile] = sig
	}
	var tarred bytes.Buffer
	out := tar.NewWriter(&tarred)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if err := writeFile(out, name, own[name]); err != nil {
			return nil, err
		}
	}
	if err := out.Flush(); err != nil { // writes the padding, but not the end marker
		return nil, fmt.Errorf("pack the bundle: %w", err)
	}
	head := storedBlocks(tarred.Bytes())
	sum := crc32.Update(crc32.ChecksumIEEE(tarred.Bytes()), crc32.IEEETable, p.archive)
	tail := binary.LittleEndian.AppendUint32(nil, sum)
	tail = binary.LittleEndian.AppendUint32(tail, uint32(tarred.Len()+len(p.archive)))
	return [][]byte{head, p.deflated, tail}, nil
}

// gzipHeader is a gzip header (RFC 1952): deflate, no flags, no time, unknown system.
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// storedBlocks returns the start of a gzip stream, with data in uncompressed blocks (RFC 1951,
// section 3.2.4). None of them is marked as the last, so that compressed blocks may follow.
func storedBlocks(data []byte) []byte {
	const most = 1<<16 - 1
	out := append(make([]byte, 0, len(gzipHeader)+len(data)+5*(len(data)/most+1)), gzipHeader...)
	for len(data) > 0 {
		n := min(len(data), most)
		out = append(out, 0)
		out = binary.LittleEndian.AppendUint16(out, uint16(n))
		out = binary.LittleEndian.AppendUint16(out, ^uint16(n))
		out = append(out, data[:n]...)
		data = data[n:]
	}
	return out
}
