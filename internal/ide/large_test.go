package ide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/memory"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
)

// TestLargeAnswersShareMemory checks that a repository with very many refs is read only if memory for it is
// free, and gives it back, and that a small one needs none.
func TestLargeAnswersShareMemory(t *testing.T) {
	ctx := context.Background()
	pkt := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, pkt("# service=git-upload-pack\n")+"0000"+pkt(commitA+" HEAD\x00shallow\n"))
		for i, n := 0, 0; r.URL.Path == "/large/info/refs" && n <= outbound.SmallReply; i++ {
			line := pkt(fmt.Sprintf("%040x refs/heads/b%d\n", i+1, i))
			n += len(line)
			_, _ = io.WriteString(w, line)
		}
		_, _ = io.WriteString(w, "0000")
	}))
	t.Cleanup(host.Close)
	s := &Service{Target: outboundtest.Local(t), Large: memory.New(largeFetch, largeFetch, time.Nanosecond)}
	read := func(path string) error {
		_, _, err := s.ReadFile(ctx, "default", File{URL: host.URL + path, Branch: "gone"})
		return err
	}
	readable := func(err error) bool { // its refs were read, and none is the branch
		f, ok := errors.AsType[*fault.Error](err)
		return ok && f.Code == "commit_not_found"
	}
	free, err := s.Large.Take(ctx, "other", largeFetch, false)
	errtest.Must(t, err)
	if err := read("/small"); !readable(err) {
		t.Errorf("the small repository without free memory: %v, want it read", err)
	}
	if err := read("/large"); err == nil || !strings.Contains(err.Error(), memory.ErrFull.Error()) {
		t.Errorf("the large repository without free memory: %v, want %v", err, memory.ErrFull)
	}
	free()
	for range 2 {
		if err := read("/large"); !readable(err) {
			t.Errorf("the large repository: %v, want it read", err)
		}
	}
	if n := s.Large.Taken(); n != 0 {
		t.Errorf("%d bytes are taken after the fetches, want none", n)
	}
}
