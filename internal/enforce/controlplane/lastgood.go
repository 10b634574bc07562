package controlplane

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// The file of the last good bundle: magic, length and JSON of SavedHead, length and bytes
// of the bundle, and a SHA-256 of all that. A file with a byte changed, cut or added is
// invalid.
const (
	lastGoodMagic = "GHBNDL1\n"
	BundleFile    = "last-good.bundle"
	MaxBundle     = 64 << 20
)

// SavedHead is stored beside the bundle.
type SavedHead struct {
	Bouncer  string `json:"bouncer"`
	Revision string `json:"revision"`
	ETag     string `json:"etag"`
}

var errDamaged = errors.New("the saved bundle is damaged")

// encodeLastGood returns the content of the file.
func encodeLastGood(head SavedHead, bundle []byte) ([]byte, error) {
	meta, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(len(lastGoodMagic) + 12 + len(meta) + len(bundle) + sha256.Size)
	b.WriteString(lastGoodMagic)
	_ = binary.Write(&b, binary.BigEndian, uint32(len(meta)))
	b.Write(meta)
	_ = binary.Write(&b, binary.BigEndian, uint64(len(bundle)))
	b.Write(bundle)
	sum := sha256.Sum256(b.Bytes())
	b.Write(sum[:])
	return b.Bytes(), nil
}

// decodeLastGood checks and splits the content of a file.
func decodeLastGood(data []byte) (SavedHead, []byte, error) {
	var head SavedHead
	const fixed = len(lastGoodMagic) + 4
	if len(data) < fixed+8+sha256.Size || string(data[:len(lastGoodMagic)]) != lastGoodMagic {
		return head, nil, errDamaged
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	want := sha256.Sum256(body)
	if subtle.ConstantTimeCompare(sum, want[:]) != 1 {
		return head, nil, errDamaged
	}
	n := int(binary.BigEndian.Uint32(body[len(lastGoodMagic):]))
	if n < 0 || n > len(body)-fixed-8 {
		return head, nil, errDamaged
	}
	if err := json.Unmarshal(body[fixed:fixed+n], &head); err != nil {
		return head, nil, errDamaged
	}
	bundle := body[fixed+n+8:]
	if binary.BigEndian.Uint64(body[fixed+n:]) != uint64(len(bundle)) {
		return head, nil, errDamaged
	}
	return head, bundle, nil
}

// SaveBundle replaces the file in one step: after a crash, the old or the new bundle is
// there.
func SaveBundle(dir string, head SavedHead, bundle []byte) error {
	data, err := encodeLastGood(head, bundle)
	if err != nil {
		return err
	}
	return SaveFile(dir, BundleFile, data)
}

// SaveFile replaces a file in one step. Only its owner may read it.
func SaveFile(dir, name string, data []byte) error {
	f, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// LoadBundle reads the file. The error is os.ErrNotExist if there is none. contact is
// when the control plane last confirmed the bundle: the modification time of the file.
func LoadBundle(dir string) (head SavedHead, bundle []byte, contact time.Time, err error) {
	f, err := os.Open(filepath.Join(dir, BundleFile))
	if err != nil {
		return head, nil, contact, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return head, nil, contact, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxBundle+1<<20))
	if err != nil {
		return head, nil, contact, fmt.Errorf("the saved bundle: %w", err)
	}
	head, bundle, err = decodeLastGood(data)
	return head, bundle, info.ModTime(), err
}

// ConfirmBundle notes that the control plane confirmed the saved bundle.
func ConfirmBundle(dir string, at time.Time) {
	// If this fails, the bundle looks older than it is after a restart, which is safe.
	_ = os.Chtimes(filepath.Join(dir, BundleFile), at, at)
}
