package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

func bundleSet(t testing.TB) *rego.Set {
	t.Helper()
	c := compiledControlOf(t, rego.Meta{ID: 3, Name: "docs", Version: 2, Targets: "channel:3 integration:4"}, accessControl)
	return rego.NewSet(rego.SetSpec{
		Revision: 12, Env: "sandbox", Controls: []*rego.Control{c},
		PIP:       valuetest.Decode(t, `{"hr":{"suspended":{"eve":true},"salaries":{"ann":1}},"crm":{"secret":"s"}}`),
		Resources: []target.Resource{{ID: 1, Type: "api", Path: "/a/*", Methods: []string{"get"}, Tags: []string{"GDPR"}, AuditLevel: "detailed", Doc: valuetest.Decode(t, `{"id":1,"n":1.50}`)}},
	})
}

func TestBundleIsDeterministicAndReadBack(t *testing.T) {
	spec := Spec{Revision: "12", Set: bundleSet(t), Meta: valuetest.Decode(t, `{"tenant":"default"}`)}
	one, err := Write(spec)
	errtest.Must(t, err)
	spec.Set = bundleSet(t)
	two, err := Write(spec)
	if err != nil || !bytes.Equal(one, two) {
		t.Fatalf("two bundles of the same differ (%v)", err)
	}
	b, err := readVerified(one, nil)
	errtest.Must(t, err)
	if b.Revision != "12" || b.Env != "sandbox" || b.Meta["tenant"] != "default" || b.Set.Revision() != 12 {
		t.Errorf("%+v", b)
	}
	if got := b.Set.Control(3).Meta().Targets; got != "channel:3 integration:4" {
		t.Errorf("the targets of its actions read %q", got)
	}
	r := b.Set.Resources()[0]
	if r.AuditLevel != "detailed" || r.Tags[0] != "GDPR" || r.Methods[0] != "GET" {
		t.Errorf("%+v", r)
	}
	if b.Set.Controls()[0].Source() != accessControl {
		t.Error("the source is another")
	}
	// Of the data only what the controls refer to.
	if text := string(b.Set.PIP().AppendJSON(nil)); strings.Contains(text, "crm") || !strings.Contains(text, "suspended") {
		t.Errorf("data.pip is %s", text)
	}
	again, err := Write(Spec{Revision: "12", Set: b.Set, Meta: spec.Meta})
	if err != nil || len(again) == 0 {
		t.Errorf("what was read cannot be written: %v", err)
	}
}

// repack rewrites a bundle's files.
func repack(t *testing.T, data []byte, change func(map[string][]byte)) []byte {
	t.Helper()
	files, err := unpack(data)
	errtest.Must(t, err)
	change(files)
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	out := tar.NewWriter(zip)
	for name, body := range files {
		errtest.Must(t, out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(body)), Typeflag: tar.TypeReg}))
		errtest.Must(t, errtest.Of(out.Write(body)))
	}
	errtest.Must(t, errors.Join(out.Close(), zip.Close()))
	return buf.Bytes()
}

func signingKeys(t *testing.T) map[string]crypto.Signer {
	t.Helper()
	rsaKey, err1 := rsa.GenerateKey(rand.Reader, 2048)
	ecKey, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, edKey, err3 := ed25519.GenerateKey(rand.Reader)
	errtest.Must(t, errors.Join(err1, err2, err3))
	return map[string]crypto.Signer{"RS256": rsaKey, "ES256": ecKey, "EdDSA": edKey}
}

func TestSignedBundles(t *testing.T) {
	opa := apptest.OPA(t)
	for alg, key := range signingKeys(t) {
		t.Run(alg, func(t *testing.T) {
			if alg != "EdDSA" {
				fulltest.Only(t)
			}
			data, err := Write(Spec{Revision: "1", Set: bundleSet(t), Signing: &SigningKey{ID: "k1", Key: key}})
			errtest.Must(t, err)
			good := &Verify{KeyID: "k1", Key: key.Public()}
			if _, err := readVerified(data, good); err != nil {
				t.Errorf("a good signature: %v", err)
			}
			if _, err := readVerified(data, &Verify{Key: key.Public()}); err != nil {
				t.Errorf("by the key alone: %v", err)
			}
			if _, err := readVerified(data, nil); err != nil {
				t.Errorf("unverified: %v", err)
			}
			for name, tc := range map[string]struct {
				data   []byte
				verify *Verify
			}{
				"another key":        {data, &Verify{KeyID: "k1", Key: signingKeys(t)[alg].Public()}},
				"another key, no id": {data, &Verify{Key: signingKeys(t)[alg].Public()}},
				"another kind":       {data, &Verify{KeyID: "k1", Key: signingKeys(t)[map[string]string{"RS256": "ES256", "ES256": "EdDSA", "EdDSA": "RS256"}[alg]].Public()}},
				"another id":         {data, &Verify{KeyID: "k2", Key: key.Public()}},
				"no key":             {data, &Verify{KeyID: "k1"}},
				"another scope":      {data, &Verify{KeyID: "k1", Key: key.Public(), Scope: "write"}},
				"changed control": {repack(t, data, func(f map[string][]byte) {
					f["gatehouse/controls/c3.rego"] = []byte("package gatehouse.controls.c3\nallow := true")
				}), good},
				"changed index": {repack(t, data, func(f map[string][]byte) {
					f[indexFile] = bytes.Replace(f[indexFile], []byte("editor"), []byte("viewer"), 1)
				}), good},
				"another file": {repack(t, data, func(f map[string][]byte) { f["gatehouse/controls/c9.rego"] = []byte("package gatehouse.controls.c9") }), good},
				"a file less":  {repack(t, data, func(f map[string][]byte) { delete(f, "pip/data.json") }), good},
				"no signature": {repack(t, data, func(f map[string][]byte) { delete(f, signaturesFile) }), good},
				"two signatures": {repack(t, data, func(f map[string][]byte) {
					f[signaturesFile] = bytes.Replace(f[signaturesFile], []byte(`["`), []byte(`["x","`), 1)
				}), good},
				"a second signature file": {repack(t, data, func(f map[string][]byte) { f["x/.signatures.json"] = f[signaturesFile] }), good},
			} {
				if _, err := readVerified(tc.data, tc.verify); err == nil {
					t.Errorf("%s passes", name)
				}
			}
			if alg != "EdDSA" { // which OPA does not know
				verifyByOPA(t, opa, data, alg, key)
			}
		})
	}
}

func TestReadVerify(t *testing.T) {
	block := func(kind string, der []byte, err error) string {
		errtest.Must(t, err)
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	keys := signingKeys(t)
	for alg, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		v, err := ReadVerify(block("PUBLIC KEY", der, err))
		if err != nil || v.KeyID != "" || !key.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(v.Key) {
			t.Errorf("%s: %+v, error %v", alg, v, err)
		}
	}
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	errtest.Must(t, err)
	der, err := x509.MarshalPKIXPublicKey(large.Public())
	private, err2 := x509.MarshalPKCS8PrivateKey(keys["ES256"])
	for name, text := range map[string]string{
		"nothing": "", "no PEM": "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE", "cut": block("PUBLIC KEY", []byte{48, 3}, nil),
		"another curve": block("PUBLIC KEY", der, err), "a private key": block("PRIVATE KEY", private, err2),
	} {
		if v, err := ReadVerify(text); err == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func verifyByOPA(t *testing.T, opa string, data []byte, alg string, key crypto.Signer) {
	t.Helper()
	dir := t.TempDir()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	errtest.Must(t, err)
	pub := filepath.Join(dir, "pub.pem")
	file := filepath.Join(dir, "bundle.tar.gz")
	if err := errors.Join(
		os.WriteFile(pub, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600),
		os.WriteFile(file, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	// `opa build` verifies what it is given before it builds.
	out, err := exec.CommandContext(t.Context(), opa, "build", "--bundle", file, "--verification-key", pub,
		"--verification-key-id", "k1", "--signing-alg", alg, "-o", filepath.Join(dir, "out.tar.gz")).CombinedOutput()
	if err != nil {
		t.Errorf("OPA refuses the signature: %v %s", err, out)
	}
	bad := repack(t, data, func(f map[string][]byte) { f["pip/data.json"] = []byte(`{}`) })
	errtest.Must(t, os.WriteFile(file, bad, 0o600))
	if out, err := exec.CommandContext(t.Context(), opa, "build", "--bundle", file, "--verification-key", pub,
		"--verification-key-id", "k1", "--signing-alg", alg, "-o", filepath.Join(dir, "out.tar.gz")).CombinedOutput(); err == nil {
		t.Errorf("OPA takes a changed bundle: %s", out)
	}
}

func TestReadBundleRefuses(t *testing.T) {
	data, err := Write(Spec{Revision: "1", Set: bundleSet(t)})
	errtest.Must(t, err)
	for name, bad := range map[string][]byte{
		"nothing":     nil,
		"text":        []byte("hello"),
		"half":        data[:len(data)/2],
		"no manifest": repack(t, data, func(f map[string][]byte) { delete(f, manifestFile) }),
		"no index":    repack(t, data, func(f map[string][]byte) { delete(f, indexFile) }),
		"delta":       repack(t, data, func(f map[string][]byte) { f["patch.json"] = []byte(`{"data":[]}`) }),
		"other roots": repack(t, data, func(f map[string][]byte) { f[manifestFile] = []byte(`{"revision":"1","roots":[""],"rego_version":1}`) }),
		"no roots":    repack(t, data, func(f map[string][]byte) { f[manifestFile] = []byte(`{"revision":"1","rego_version":1}`) }),
		"Rego v0": repack(t, data, func(f map[string][]byte) {
			f[manifestFile] = bytes.Replace(f[manifestFile], []byte(`n":1`), []byte(`n":0`), 1)
		}),
		"another file": repack(t, data, func(f map[string][]byte) { f["system/authz.rego"] = []byte("package system.authz") }),
		"a way out":    repack(t, data, func(f map[string][]byte) { f["../x"] = nil }),
		"bad control": repack(t, data, func(f map[string][]byte) {
			f[indexFile] = bytes.Replace(f[indexFile], []byte("default allow"), []byte("defaulx allow"), 1)
		}),
		"bad JSON": repack(t, data, func(f map[string][]byte) { f[indexFile] = f[indexFile][:20] }),
	} {
		if _, err := readVerified(bad, nil); err == nil {
			t.Errorf("%s passes", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	_, err = readVerified(repack(t, data, func(f map[string][]byte) {
		f[indexFile] = bytes.Replace(f[indexFile], []byte("default allow"), []byte("defaulx allow"), 1)
	}), nil)
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Control != 3 || refused.Issues[0].Line != 3 {
		t.Errorf("%v", err)
	}
	// Every flipped byte is noticed, or changes nothing.
	for i := range data {
		flipped := bytes.Clone(data)
		flipped[i] ^= 0x20
		if b, err := readVerified(flipped, nil); err == nil && b.Set.Controls()[0].Source() != accessControl {
			t.Errorf("byte %d: taken, with another content", i)
		}
		if i > 1500 {
			break
		}
	}
}

func FuzzReadBundle(f *testing.F) {
	c, issues := rego.Compile(rego.Meta{ID: 1}, "package a\nallow := true")
	if issues != nil {
		f.Fatal(issues)
	}
	data, err := Write(Spec{Set: rego.NewSet(rego.SetSpec{Controls: []*rego.Control{c}, PIP: value.Object()})})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = readVerified(data, nil)
	})
}

// readVerified reads a bundle with no set known beforehand.
func readVerified(data []byte, verify *Verify) (*Bundle, error) {
	return Reader{Verify: verify}.Read(data)
}

func compiledControlOf(t testing.TB, m rego.Meta, source string) *rego.Control {
	t.Helper()
	c, issues := rego.Compile(m, source)
	if issues != nil {
		t.Fatalf("%v\n%s", issues, source)
	}
	return c
}

// accessControl is a control of the usual kind: roles, attributes, a deny with reasons.
const accessControl = `package acme.documents

default allow := false

allow if {
	"editor" in input.user.roles
	input.action.name == "read"
	input.resource.data_classification != "restricted"
}

allow if {
	input.user.id == input.resource.attributes.owner
}

deny contains "outside office hours" if input.context.hour > 20

deny contains "suspended" if data.pip.hr.suspended[input.user.id]

reason := "the owner may" if input.user.id == input.resource.attributes.owner
`
