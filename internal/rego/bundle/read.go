package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/util"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Bounds on a bundle that is read.
const (
	maxBundleBytes    = 256 << 20 // compressed
	maxBundleUnpacked = 512 << 20
	maxBundleFiles    = 50_000
)

// Bundle is a bundle that was read, checked and compiled.
type Bundle struct {
	Revision string
	Env      string
	Set      *rego.Set
	// Meta is the manifest's metadata.
	Meta map[string]any
}

// Reader reads bundles for one enforcement point.
type Reader struct {
	// Verify checks the signature, which must cover exactly the files of the bundle; nil ignores
	// the signature.
	Verify *Verify
	// Active is the set that decides now; it may be nil. Controls that the bundle and this set have
	// in common are reused, so that a new bundle costs work only for its changes.
	Active *rego.Set
	// Stored says that the bundle was read here before. Its controls compile at their first use,
	// so that a restart does not wait for thousands of them. A control that no longer compiles
	// denies.
	Stored bool
}

// Read reads a bundle of Write and compiles its controls. Read fails for a delta bundle, an
// unexpected file, a missing manifest, wrong roots, and a control that does not compile: a bundle
// is used as a whole or not at all.
func (r Reader) Read(data []byte) (*Bundle, error) {
	verify := r.Verify
	files, err := unpack(data)
	if err != nil {
		return nil, err
	}
	if _, delta := files["patch.json"]; delta {
		return nil, errors.New("delta bundles are not supported")
	}
	signatures, signed := files[signaturesFile]
	delete(files, signaturesFile)
	if verify != nil {
		if !signed {
			return nil, fmt.Errorf("%w: the bundle has no signature", errSignature)
		}
		if err := verify.check(signatures, files); err != nil {
			return nil, err
		}
	}
	b := &Bundle{}
	if err := b.manifest(files[manifestFile]); err != nil {
		return nil, err
	}
	if err := checkFiles(files); err != nil {
		return nil, err
	}
	doc, err := bundleJSON(indexFile, files[indexFile])
	if err != nil {
		return nil, err
	}
	agents, err := agentsIn(b.Meta)
	if err != nil {
		return nil, err
	}
	if b.Set, err = r.index(doc.Get("index"), rego.SetSpec{Grants: doc.Get("granted"), Agents: agents}, files); err != nil {
		return nil, err
	}
	b.Env = b.Set.Env()
	return b, nil
}

// unpack returns the files of an archive by name, within bounds.
func unpack(data []byte) (map[string][]byte, error) {
	if len(data) > maxBundleBytes {
		return nil, fmt.Errorf("the bundle is larger than %d bytes", maxBundleBytes)
	}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("unpack the bundle: %w", err)
	}
	zip.Multistream(false)
	bounded := &io.LimitedReader{R: zip, N: maxBundleUnpacked + 1}
	in := tar.NewReader(bounded)
	files := map[string][]byte{}
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("unpack the bundle: %w", err)
		}
		name := strings.TrimPrefix(h.Name, "/")
		if h.Typeflag != tar.TypeReg || name == "" || path.Clean(name) != name || strings.HasPrefix(name, "..") {
			return nil, fmt.Errorf("the bundle contains %q, which is not a plain file", h.Name)
		}
		if _, twice := files[name]; twice || len(files) >= maxBundleFiles {
			return nil, fmt.Errorf("the bundle contains %q twice, or too many files", h.Name)
		}
		body, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("unpack the bundle: %w", err)
		}
		files[name] = body
	}
	// Read the stream to its end: gzip checks the checksum there.
	if _, err := io.Copy(io.Discard, bounded); err != nil {
		return nil, fmt.Errorf("unpack the bundle: %w", err)
	}
	if bounded.N <= 0 {
		return nil, fmt.Errorf("the bundle unpacks to more than %d bytes", maxBundleUnpacked)
	}
	return files, nil
}

func bundleJSON(name string, data []byte) (value.Value, error) {
	if data == nil {
		return value.Value{}, fmt.Errorf("the bundle has no %s", name)
	}
	// Not value.Decode: it refuses members whose names differ only in case, but such members may
	// occur in tables and in the data of connections.
	var x any
	if err := util.UnmarshalJSON(data, &x); err != nil {
		return value.Value{}, fmt.Errorf("read %s: %w", name, err)
	}
	v, err := value.FromAny(x)
	if err != nil {
		return v, fmt.Errorf("read %s: %w", name, err)
	}
	return v, nil
}

func (b *Bundle) manifest(data []byte) error {
	m, err := bundleJSON(manifestFile, data)
	if err != nil {
		return err
	}
	b.Revision, _ = m.Get("revision").Str()
	if meta, ok := m.Get("metadata").Any().(map[string]any); ok {
		b.Meta = meta
	}
	var roots []string
	for _, r := range m.Get("roots").Elems() {
		s, _ := r.Str()
		roots = append(roots, s)
	}
	slices.Sort(roots)
	if want := slices.Sorted(slices.Values(bundleRoots)); !slices.Equal(roots, want) {
		return fmt.Errorf("the bundle's roots are %q, not %q", roots, want)
	}
	if n, _ := m.Get("rego_version").Int64(); n != 1 {
		return errors.New("the bundle is not Rego v1")
	}
	return nil
}

// checkFiles refuses files that Write never writes.
func checkFiles(files map[string][]byte) error {
	for name := range files {
		switch name {
		case manifestFile, indexFile, entryFile, rulesFile, strictFile, grantsFile, "resources/data.json", "pip/data.json":
			continue
		}
		dir, base := path.Split(name)
		if (dir == "gatehouse/controls/" || dir == "gatehouse/outcomes/" || dir == "gatehouse/libraries/") && path.Ext(base) == ".rego" {
			continue
		}
		return fmt.Errorf("the bundle contains the unexpected file %q", name)
	}
	return nil
}

// index builds the set from a bundle's index. spec has what is not in the index.
func (r Reader) index(index value.Value, spec rego.SetSpec, files map[string][]byte) (*rego.Set, error) {
	if index.Kind() != value.ObjectKind {
		return nil, errors.New("the bundle has no index")
	}
	spec.Env, _ = index.Get("env").Str()
	spec.Revision, _ = index.Get("revision").Int64()
	libraries := map[string]lang.Library{}
	for _, p := range index.Get("libraries").Pairs() {
		key, _ := p.K.Str()
		l, err := readLibrary(p.V)
		if err != nil {
			return nil, err
		}
		libraries[key] = l
	}
	for _, p := range index.Get("controls").Pairs() {
		c, err := r.control(p.V, libraries)
		if err != nil {
			return nil, err
		}
		spec.Controls = append(spec.Controls, c)
	}
	for _, p := range index.Get("resources").Pairs() {
		r, err := readResource(p.V)
		if err != nil {
			return nil, err
		}
		spec.Resources = append(spec.Resources, r)
	}
	if data, ok := files["pip/data.json"]; ok {
		pip, err := bundleJSON("pip/data.json", data)
		if err != nil {
			return nil, err
		}
		spec.PIP = pip
	}
	return rego.NewSet(spec), nil
}

func readLibrary(v value.Value) (l lang.Library, err error) {
	var ok [4]bool
	l.ID, ok[0] = v.Get("id").Int64()
	l.Name, ok[1] = v.Get("name").Str()
	l.Version, ok[2] = v.Get("version").Int64()
	l.Source, ok[3] = v.Get("source").Str()
	if slices.Contains(ok[:], false) {
		err = errors.New("the bundle's index contains a library that cannot be read")
	}
	return l, err
}

func (r Reader) control(v value.Value, libraries map[string]lang.Library) (*rego.Control, error) {
	var m rego.Meta
	var ok [5]bool
	m.ID, ok[0] = v.Get("id").Int64()
	m.Name, ok[1] = v.Get("name").Str()
	m.Version, ok[2] = v.Get("version").Int64()
	m.ResourceID, ok[3] = v.Get("resource_id").Int64()
	var source string
	source, ok[4] = v.Get("source").Str()
	if slices.Contains(ok[:], false) {
		return nil, errors.New("the bundle's index contains a control that cannot be read")
	}
	var targets []string
	for _, t := range v.Get("action_targets").Elems() {
		name, _ := t.Str()
		targets = append(targets, name)
	}
	m.Targets = strings.Join(targets, " ")
	var libs []lang.Library
	for _, key := range v.Get("libraries").Elems() {
		name, _ := key.Str()
		l, ok := libraries[name]
		if !ok {
			return nil, errors.New("the bundle's index contains a control whose library is missing")
		}
		libs = append(libs, l)
	}
	if why := v.Get("refused"); why.Defined() {
		is := lang.Issue{Severity: lang.SeverityError}
		is.Message, _ = why.Get("message").Str()
		line, _ := why.Get("line").Int64()
		column, _ := why.Get("column").Int64()
		is.Line, is.Column = int(line), int(column)
		return rego.Refused(m, source, libs, is), nil
	}
	var c *rego.Control
	if r.Active != nil {
		c = r.Active.Control(m.ID)
	}
	if c == nil || !c.BuiltFrom(m, source, libs) {
		c = rego.Defer(m, source, libs)
	}
	if r.Stored {
		return c, nil
	}
	if issues := c.Broken(); len(issues) > 0 {
		return nil, &RefusedError{Control: m.ID, Version: m.Version, Issues: issues}
	}
	return c, nil
}

// RefusedError is the error of a bundle with a control that does not compile here.
type RefusedError struct {
	Control, Version int64
	Issues           []lang.Issue
}

// Error names the control and the first issue.
func (e *RefusedError) Error() string {
	is := e.Issues[0]
	return fmt.Sprintf("control %d (version %d) does not compile: line %d, column %d: %s", e.Control, e.Version, is.Line, is.Column, is.Message)
}

func readResource(v value.Value) (target.Resource, error) {
	var r target.Resource
	var ok bool
	if r.ID, ok = v.Get("id").Int64(); !ok {
		return r, errors.New("the bundle's index contains a resource that cannot be read")
	}
	r.Name, _ = v.Get("name").Str()
	r.Type, _ = v.Get("type").Str()
	r.Host, _ = v.Get("host").Str()
	r.Path, _ = v.Get("path").Str()
	r.AuditLevel, _ = v.Get("audit_level").Str()
	r.PathMatching, _ = v.Get("path_matching").Str()
	r.Discovered, _ = v.Get("discovered").Bool()
	for _, m := range v.Get("methods").Elems() {
		s, _ := m.Str()
		r.Methods = append(r.Methods, s)
	}
	for _, t := range v.Get("tags").Elems() {
		s, _ := t.Str()
		r.Tags = append(r.Tags, s)
	}
	r.Doc = v.Get("doc")
	return r, nil
}
