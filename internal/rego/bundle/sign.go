package bundle

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/golang-jwt/jwt/v5"
	opabundle "github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/util"
)

// SigningKey signs bundles in OPA's format: a JWT (RFC 7519) over the digests of all files. RSA keys
// sign with RS256 and P-256 keys with ES256, which a stock OPA verifies. Ed25519 keys sign with
// EdDSA, which only our own bouncer verifies.
type SigningKey struct {
	ID  string
	Key crypto.Signer
	// Scope is added to the signature if it is not empty.
	Scope string
}

// Verify says how to verify a bundle's signature. The token never chooses the key.
type Verify struct {
	// KeyID is the key id that a signature must have if it has one; empty allows any.
	KeyID string
	Key   crypto.PublicKey
	Scope string
}

// ReadVerify parses a public key in PEM, with which signatures of bundles are verified.
func ReadVerify(text string) (*Verify, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the key is not PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the PEM block %q holds no public key: %w", block.Type, err)
	}
	if _, err := signingMethod(key); err != nil {
		return nil, err
	}
	return &Verify{Key: key}, nil
}

// errSignature is the error of a bundle whose signature is not valid.
var errSignature = errors.New("the bundle's signature is not valid")

type signedFile struct {
	Name      string `json:"name"`
	Hash      string `json:"hash"`
	Algorithm string `json:"algorithm"`
}

type signatureClaims struct {
	Files []signedFile `json:"files"`
	Scope string       `json:"scope,omitempty"`
	jwt.RegisteredClaims
}

func signingMethod(key crypto.PublicKey) (jwt.SigningMethod, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return jwt.SigningMethodRS256, nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return jwt.SigningMethodES256, nil
		}
	case ed25519.PublicKey:
		return jwt.SigningMethodEdDSA, nil
	}
	return nil, fmt.Errorf("bundles are signed with RSA, P-256 or Ed25519 keys, not %T", key)
}

// sign returns the content of .signatures.json for files.
func (k *SigningKey) sign(files map[string][]byte) ([]byte, error) {
	if k.ID == "" || k.Key == nil {
		return nil, errors.New("a signing key needs an id and a key")
	}
	method, err := signingMethod(k.Key.Public())
	if err != nil {
		return nil, err
	}
	claims := signatureClaims{Scope: k.Scope}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum, err := fileDigest(name, files[name])
		if err != nil {
			return nil, err
		}
		claims.Files = append(claims.Files, signedFile{Name: name, Hash: sum, Algorithm: opabundle.SHA256.String()})
	}
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = k.ID
	text, err := token.SignedString(k.Key)
	if err != nil {
		return nil, fmt.Errorf("sign the bundle: %w", err)
	}
	return json.Marshal(map[string][]string{"signatures": {text}})
}

// fileDigest returns OPA's digest of a file in hexadecimal. For JSON it covers the parsed document,
// for any other file the bytes.
func fileDigest(name string, data []byte) (string, error) {
	h, err := opabundle.NewSignatureHasher(opabundle.SHA256)
	if err != nil {
		return "", err
	}
	var v any = data
	if base := path.Base(name); base == manifestFile || path.Ext(base) == ".json" {
		if err := util.Unmarshal(data, &v); err != nil {
			return "", fmt.Errorf("digest of %s: %w", name, err)
		}
	}
	sum, err := h.HashFile(v)
	return hex.EncodeToString(sum), err
}

// check verifies the files of a bundle; signatures is the content of .signatures.json.
func (v *Verify) check(signatures []byte, files map[string][]byte) error {
	if v.Key == nil {
		return errors.New("a key is needed to verify the bundle")
	}
	var doc struct {
		Signatures []string `json:"signatures"`
	}
	if err := json.Unmarshal(signatures, &doc); err != nil || len(doc.Signatures) != 1 {
		return fmt.Errorf("%w: there must be exactly one signature", errSignature)
	}
	method, err := signingMethod(v.Key)
	if err != nil {
		return err
	}
	var claims signatureClaims
	_, err = jwt.ParseWithClaims(doc.Signatures[0], &claims, func(t *jwt.Token) (any, error) {
		if kid, ok := t.Header["kid"]; ok && v.KeyID != "" && kid != v.KeyID {
			return nil, fmt.Errorf("the signature has the key id %v", kid)
		}
		return v.Key, nil
	}, jwt.WithValidMethods([]string{method.Alg()}), jwt.WithoutClaimsValidation())
	if err != nil {
		return fmt.Errorf("%w: %w", errSignature, err)
	}
	if claims.Scope != v.Scope {
		return fmt.Errorf("%w: it has another scope", errSignature)
	}
	left := maps.Clone(files)
	for _, f := range claims.Files {
		data, ok := left[f.Name]
		if !ok {
			return fmt.Errorf("%w: %s is not in the bundle", errSignature, f.Name)
		}
		sum, err := fileDigest(f.Name, data)
		if err != nil || f.Algorithm != opabundle.SHA256.String() || sum != f.Hash {
			return fmt.Errorf("%w: %s was changed", errSignature, f.Name)
		}
		delete(left, f.Name)
	}
	for name := range left {
		return fmt.Errorf("%w: %s is not signed", errSignature, name)
	}
	return nil
}
