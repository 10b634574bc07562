package blob

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fakeS3 speaks as much of S3 as the client uses: path style, one bucket, single
// uploads with chunked signatures, lists in pages of two.
type fakeS3 struct {
	bucket  string
	mu      sync.Mutex
	objects map[string][]byte
}

func newFakeS3(bucket string) *fakeS3 { return &fakeS3{bucket: bucket, objects: map[string][]byte{}} }

// ServeHTTP answers one call.
func (s *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=key/") {
		s.fail(w, http.StatusForbidden, "AccessDenied")
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
	case key == "" && r.Method == http.MethodGet:
		s.list(w, r)
	case key == "":
	case r.Method == http.MethodPut:
		body, err := payload(r)
		if err != nil {
			s.fail(w, http.StatusBadRequest, "IncompleteBody")
			return
		}
		s.objects[key] = body
		w.Header().Set("ETag", `"x"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		s.fail(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(data)
		}
	}
}

func (s *fakeS3) fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

func (s *fakeS3) list(w http.ResponseWriter, r *http.Request) {
	type object struct {
		Key          string
		Size         int
		LastModified string
	}
	out := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Contents              []object
		IsTruncated           bool
		NextContinuationToken string
	}{}
	var keys []string
	for k := range s.objects {
		if strings.HasPrefix(k, r.URL.Query().Get("prefix")) && k > r.URL.Query().Get("continuation-token") {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	if len(keys) > 2 {
		keys, out.IsTruncated, out.NextContinuationToken = keys[:2], true, keys[1]
	}
	for _, k := range keys {
		out.Contents = append(out.Contents, object{k, len(s.objects[k]), time.Now().UTC().Format(time.RFC3339)})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out)
}

// payload undoes the chunks in which signed bodies come.
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
