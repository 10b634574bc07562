package servertls

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
)

// files has the contents of the certificate and key files as they were last read.
type files struct {
	certificate, key []byte
	pair             *tls.Certificate // of these contents; nil: they are not a pair
	failed           string           // why the last read failed
}

// read reads a certificate with its key into pair. changed is false if the contents, or the reason why
// they cannot be read, are the same as last time. It compares contents, because a link can be changed
// to a file with the same time stamp.
func (f *files) read(certFile, keyFile string) (changed bool, err error) {
	certificate, err := os.ReadFile(certFile)
	if err != nil {
		return f.fail(err), fmt.Errorf("GATEHOUSE_TLS_CERT: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return f.fail(err), fmt.Errorf("GATEHOUSE_TLS_KEY: %w", err)
	}
	if bytes.Equal(certificate, f.certificate) && bytes.Equal(key, f.key) {
		f.failed = "" // the files can be read again
		return false, nil
	}
	f.certificate, f.key, f.pair, f.failed = certificate, key, nil, ""
	out, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return true, fmt.Errorf("GATEHOUSE_TLS_CERT, GATEHOUSE_TLS_KEY: %w", err)
	}
	f.pair = &out
	return true, nil
}

// fail stores why the files cannot be read, and reports whether the reason is new.
func (f *files) fail(err error) bool {
	known := f.failed == err.Error()
	f.failed = err.Error()
	return !known
}
