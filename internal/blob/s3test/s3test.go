// Package s3test is a small S3 server for tests: path style, one bucket, single uploads. It checks
// the signature of each call (AWS Signature Version 4), so a client with wrong signatures fails.
package s3test

import (
	"bufio"
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // S3 defines it
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The only credential that the server accepts.
const (
	AccessKey = "key"
	SecretKey = "secret"
)

// Server is an S3 server with one bucket.
type Server struct {
	bucket  string
	mu      sync.Mutex
	objects map[string][]byte
	puts    []string
}

// modified is the time that the server gives as the last change of each object.
var modified = time.Date(2026, 1, 15, 9, 30, 0, 0, time.UTC)

// New returns a server with an empty bucket.
func New(bucket string) *Server { return &Server{bucket: bucket, objects: map[string][]byte{}} }

// Object returns the content of an object in the bucket; nil: there is none.
func (s *Server) Object(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key]
}

// Puts returns the keys of the objects that were stored, in order.
func (s *Server) Puts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.puts)
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if code := checkSignature(r); code != "" {
		s.fail(w, http.StatusForbidden, code)
		return
	}
	if bucket != s.bucket {
		s.fail(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	data, there := s.objects[key]
	switch {
	case key == "":
	case r.Method == http.MethodPut:
		body, err := payload(r)
		if err != nil {
			s.fail(w, http.StatusBadRequest, "IncompleteBody")
			return
		}
		s.objects[key] = body
		s.puts = append(s.puts, key)
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		s.fail(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", etag(data))
		w.Header().Set("Last-Modified", modified.Format(http.TimeFormat))
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(data)
		}
	}
}

// etag returns the ETag of an object, as S3 computes it for one that was stored in one call.
func etag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) } //nolint:gosec // S3 defines it

func (s *Server) fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

// checkSignature checks the signature of the head of a call. It returns an S3 error code; "": the
// signature is valid.
func checkSignature(r *http.Request) string {
	sent, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !ok {
		return "AccessDenied"
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq(sent, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[name] = value
	}
	access, scope, _ := strings.Cut(parts["Credential"], "/")
	if access != AccessKey {
		return "InvalidAccessKeyId"
	}
	names := strings.Split(parts["SignedHeaders"], ";")
	var headers strings.Builder
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		headers.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	query := strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20")
	canonical := strings.Join([]string{r.Method, r.URL.EscapedPath(), query, headers.String(), parts["SignedHeaders"], r.Header.Get("X-Amz-Content-Sha256")}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", r.Header.Get("X-Amz-Date"), scope, hex.EncodeToString(sum[:])}, "\n")
	key := []byte("AWS4" + SecretKey)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	if hex.EncodeToString(mac(key, text)) != parts["Signature"] {
		return "SignatureDoesNotMatch"
	}
	return ""
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// payload reads the body of a call. It removes the chunk format of signed streaming bodies.
func payload(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var out []byte
	lines := bufio.NewReader(r.Body)
	for {
		head, err := lines.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(head), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return out, nil
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(lines, chunk); err != nil {
			return nil, err
		}
		out = append(out, chunk[:n]...)
	}
}
