package edge

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
)

// files are the certificate and key files as they were read last.
type files struct {
	certificate, key []byte
	failed           string
}

// read reads a certificate with its key. changed is false where they, or the reason why they
// cannot be read, are those of the last time. Contents are compared, for a time stamp says
// nothing of a file that a link now names another for.
func (f *files) read(certFile, keyFile string) (pair *tls.Certificate, changed bool, err error) {
	certificate, err := os.ReadFile(certFile)
	if err != nil {
		return nil, f.fail(err), fmt.Errorf("GATEHOUSE_TLS_CERT: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, f.fail(err), fmt.Errorf("GATEHOUSE_TLS_KEY: %w", err)
	}
	if bytes.Equal(certificate, f.certificate) && bytes.Equal(key, f.key) {
		return nil, false, nil
	}
	f.certificate, f.key, f.failed = certificate, key, ""
	out, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, true, fmt.Errorf("GATEHOUSE_TLS_CERT, GATEHOUSE_TLS_KEY: %w", err)
	}
	return &out, true, nil
}

// fail notes why the files cannot be read, and reports whether that is new.
func (f *files) fail(err error) bool {
	known := f.failed == err.Error()
	f.failed = err.Error()
	return !known
}
