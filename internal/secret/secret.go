// Package secret keeps credentials unreadable at rest. A Box seals with
// AES-256-GCM under a key of its own that is derived from the operator's key;
// what a sealed value belongs to (tenant, table, row) is bound to it as
// associated data, so a value copied to another row does not open.
//
// Sealed: one byte that names the key, 12 bytes nonce, ciphertext, 16 bytes tag.
// Keys rotate by putting the new one first: all of them open, the first seals,
// and Stale tells what is still under an old one.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// KeyBytes is the length of a key.
const KeyBytes = 32

// ErrOpen says that a value does not open: it is damaged, was sealed under a key
// that the box has not, or belongs elsewhere.
var ErrOpen = errors.New("secret: the sealed value does not open")

// Box seals and opens. It is safe for concurrent use.
type Box struct {
	keys []sealer // the first one seals
	root [][KeyBytes]byte
}

type sealer struct {
	id   byte
	aead cipher.AEAD
}

// New makes a box of the operator's keys, the newest first. No key, or a key of
// zeros, is an error.
func New(keys ...[KeyBytes]byte) (*Box, error) {
	return derive("gatehouse/secret/v1", keys)
}

// FromToken is a box for one purpose whose key is derived from a token, of which
// both ends of a connection know: what the one seals the other opens, and nobody
// who sees it on its way or on a disk.
func FromToken(token, purpose string) (*Box, error) {
	key, err := hkdf.Key(sha256.New, []byte(token), nil, "gatehouse/token/v1", KeyBytes)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	return derive("gatehouse/token/v1/"+purpose, [][KeyBytes]byte{[KeyBytes]byte(key)})
}

func derive(purpose string, keys [][KeyBytes]byte) (*Box, error) {
	if len(keys) == 0 {
		return nil, errors.New("secret: no key")
	}
	b := &Box{root: keys}
	for _, k := range keys {
		if k == ([KeyBytes]byte{}) {
			return nil, errors.New("secret: a key of zeros is not allowed")
		}
		sub, err := hkdf.Key(sha256.New, k[:], nil, purpose, KeyBytes+1)
		if err != nil {
			return nil, fmt.Errorf("secret: %w", err)
		}
		block, err := aes.NewCipher(sub[:KeyBytes])
		if err != nil {
			return nil, fmt.Errorf("secret: %w", err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("secret: %w", err)
		}
		b.keys = append(b.keys, sealer{id: sub[KeyBytes], aead: aead})
	}
	return b, nil
}

// For is a box for one purpose: what it seals opens in no other.
func (b *Box) For(purpose string) (*Box, error) {
	return derive("gatehouse/secret/v1/"+purpose, b.root)
}

// Seal encrypts plain and binds it to aad, the identity of where it is kept.
func (b *Box) Seal(plain []byte, aad string) ([]byte, error) {
	k := b.keys[0]
	out := append(make([]byte, 0, 1+k.aead.Overhead()+len(plain)), k.id)
	return k.aead.Seal(out, nil, plain, bind(k.id, aad)), nil
}

// Open decrypts what Seal gave for the same aad; else ErrOpen.
func (b *Box) Open(sealed []byte, aad string) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, ErrOpen
	}
	for _, k := range b.keys { // two keys may share an id
		if k.id != sealed[0] {
			continue
		}
		if plain, err := k.aead.Open([]byte{}, nil, sealed[1:], bind(k.id, aad)); err == nil {
			return plain, nil
		}
	}
	return nil, ErrOpen
}

// Stale reports whether a sealed value is to be sealed anew under the first key.
func (b *Box) Stale(sealed []byte) bool {
	return len(sealed) == 0 || sealed[0] != b.keys[0].id
}

// bind is the associated data: the key's name and the value's place.
func bind(id byte, aad string) []byte { return append([]byte{id}, aad...) }

// ParseKeys reads one or more keys, in standard base64 and separated by commas.
func ParseKeys(text string) ([][KeyBytes]byte, error) {
	var keys [][KeyBytes]byte
	for part := range strings.SplitSeq(text, ",") {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(part))
		if err != nil || len(raw) != KeyBytes {
			return nil, fmt.Errorf("secret: key %d is not %d bytes in base64", len(keys)+1, KeyBytes)
		}
		keys = append(keys, [KeyBytes]byte(raw))
	}
	return keys, nil
}

// LoadOrCreateKeyFile reads the key in a file, or makes the file with a new one
// that only its owner may read. Of several processes that do so at once, all get
// the same key.
func LoadOrCreateKeyFile(path string) ([KeyBytes]byte, error) {
	key, err := loadKeyFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return key, fmt.Errorf("secret: %w", err)
	}
	var fresh [KeyBytes]byte
	_, _ = rand.Read(fresh[:]) // never fails
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*")
	if err != nil {
		return key, fmt.Errorf("secret: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(base64.StdEncoding.EncodeToString(fresh[:]) + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return key, fmt.Errorf("secret: %w", err)
	}
	// Link, unlike rename, leaves a file that another process made first.
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return key, fmt.Errorf("secret: %w", err)
	}
	return loadKeyFile(path)
}

func loadKeyFile(path string) (key [KeyBytes]byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return key, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return key, fmt.Errorf("secret: %s may be read by others; chmod 600 it", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return key, fmt.Errorf("secret: %w", err)
	}
	keys, err := ParseKeys(string(text))
	if err != nil || len(keys) != 1 {
		return key, fmt.Errorf("secret: %s must contain exactly one key", path)
	}
	return keys[0], nil
}
