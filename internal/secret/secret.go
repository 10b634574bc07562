// Package secret encrypts credentials at rest. A Box seals with AES-256-GCM, under a
// key that it derives from the operator's key. The place of a sealed value (tenant,
// table, row) is bound to it as associated data, so a value that is copied to another
// row does not open.
//
// A sealed value is one byte that identifies the key, a nonce of 12 bytes, the
// ciphertext and a tag of 16 bytes. To rotate keys, put the new one first: the first
// one seals, all of them open, and Reseal replaces what is sealed under an old one.
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

// ErrOpen means that a value does not open: it is damaged, was sealed under a key that
// the box does not have, or is bound to another place.
var ErrOpen = errors.New("secret: the sealed value does not open")

// Box seals and opens values. It is safe for concurrent use.
type Box struct {
	keys []sealer // the first one seals
	root [][KeyBytes]byte
}

type sealer struct {
	id   byte
	aead cipher.AEAD
}

// New returns a box with the operator's keys, the newest first. It is an error if there is
// no key, or if a key is all zeros.
func New(keys ...[KeyBytes]byte) (*Box, error) {
	return derive("gatehouse/secret/v1", keys)
}

// FromToken returns a box for one purpose, with a key that is derived from a token. Both
// ends of a connection know the token, so one can open what the other seals. Nobody else
// can, on the way or on a disk.
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

// For returns a box for one purpose. Boxes for other purposes cannot open what it seals.
func (b *Box) For(purpose string) (*Box, error) {
	return derive("gatehouse/secret/v1/"+purpose, b.root)
}

// Seal encrypts plain and binds it to aad, which identifies the place where it is stored.
func (b *Box) Seal(plain []byte, aad string) ([]byte, error) {
	k := b.keys[0]
	out := append(make([]byte, 0, 1+k.aead.Overhead()+len(plain)), k.id)
	return k.aead.Seal(out, nil, plain, bind(k.id, aad)), nil
}

// Open decrypts what Seal returned for the same aad. Error: ErrOpen.
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

// Reseal seals a value again under the first key. It returns nil if the value is under that key
// already. It opens the value to find out, because two keys may share an id. Error: ErrOpen.
func (b *Box) Reseal(sealed []byte, aad string) ([]byte, error) {
	newest := Box{keys: b.keys[:1]}
	if _, err := newest.Open(sealed, aad); err == nil {
		return nil, nil
	}
	plain, err := b.Open(sealed, aad)
	if err != nil {
		return nil, err
	}
	return b.Seal(plain, aad)
}

// bind returns the associated data: the key's id and the value's place.
func bind(id byte, aad string) []byte { return append([]byte{id}, aad...) }

// parseKeys reads one or more keys, in standard base64 and separated by commas.
func parseKeys(text string) ([][KeyBytes]byte, error) {
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

// LoadOrCreateKeyFile reads the key in a file. If the file does not exist, it creates it
// with a new key; only the owner may read it. Several processes that do so at once get
// the same key. It refuses a file that others may read.
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
	// Link, unlike rename, does not replace a file that another process has created first.
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
	keys, err := parseKeys(string(text))
	if err != nil || len(keys) != 1 {
		return key, fmt.Errorf("secret: %s must contain exactly one key", path)
	}
	return keys[0], nil
}
