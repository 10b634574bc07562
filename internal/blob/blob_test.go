package blob

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/blob/s3test"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// each runs test on a folder and on a bucket.
func each(t *testing.T, test func(t *testing.T, s Store)) {
	t.Run("dir", func(t *testing.T) { test(t, open(t, t.TempDir())) })
	t.Run("s3", func(t *testing.T) {
		server := httptest.NewServer(s3test.New("objects"))
		t.Cleanup(server.Close)
		test(t, open(t, strings.Replace(server.URL, "http://", "s3://key:secret@", 1)+"/objects/some/prefix?insecure=true&region=us-east-1"))
	})
}

func open(t testing.TB, address string) Store {
	t.Helper()
	s, err := Open(context.Background(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t testing.TB, s Store, tenant scope.TenantID, key, data string) {
	t.Helper()
	if err := s.Put(context.Background(), tenant, key, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		ctx := context.Background()
		if _, err := s.Get(ctx, "t1", "a/b"); !fault.Is(err, fault.NotFound) {
			t.Errorf("missing: %v", err)
		}
		if ok, err := s.Exists(ctx, "t1", "a/b"); ok || err != nil {
			t.Errorf("missing: %v %v", ok, err)
		}
		put(t, s, "t1", "a/b", "one")
		put(t, s, "t1", "a/b", "two")
		put(t, s, "t1", "a/empty", "")
		put(t, s, "t1", "c.tar.gz", strings.Repeat("x", 200_000))
		put(t, s, "t2", "a/b", "another tenant's")
		for key, want := range map[string]string{"a/b": "two", "a/empty": "", "c.tar.gz": strings.Repeat("x", 200_000)} {
			got, err := s.Get(ctx, "t1", key)
			if err != nil || string(got) != want {
				t.Errorf("%s: %.20q %v", key, got, err)
			}
		}
		if ok, err := s.Exists(ctx, "t1", "a/b"); !ok || err != nil {
			t.Errorf("exists: %v %v", ok, err)
		}
		keys := func(tenant scope.TenantID, prefix string) string {
			list, err := s.List(ctx, tenant, prefix)
			if err != nil || list == nil {
				t.Errorf("list: %v", err)
			}
			var out []string
			for _, o := range list {
				if o.Modified.IsZero() || (o.Key == "a/b" && tenant == "t1" && o.Size != 3) {
					t.Errorf("%+v", o)
				}
				out = append(out, o.Key)
			}
			return strings.Join(out, " ")
		}
		for prefix, want := range map[string]string{"": "a/b a/empty c.tar.gz", "a/": "a/b a/empty", "a/e": "a/empty", "zz": ""} {
			if got := keys("t1", prefix); got != want {
				t.Errorf("list %q: %s", prefix, got)
			}
		}
		for range 2 {
			if err := s.Delete(ctx, "t1", "a/b"); err != nil {
				t.Error(err)
			}
		}
		if err := Drop(ctx, s, "t1"); err != nil {
			t.Error(err)
		}
		if one, two := keys("t1", ""), keys("t2", ""); one != "" || two != "a/b" {
			t.Errorf("after the drop: %q %q", one, two)
		}
	})
}

func TestKeysStayInside(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		ctx := context.Background()
		for _, key := range []string{"", "/a", "a/", "../t2/a", "a/../../x", "a//b", ".", "a/.", "a\\b", "a\x00b", "a b", "ü", strings.Repeat("a", 600)} {
			if err := s.Put(ctx, "t1", key, nil); !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", key, err)
			}
			if _, err := s.Get(ctx, "t1", key); !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", key, err)
			}
		}
		for _, tenant := range []scope.TenantID{"", "..", "a/b", "A"} {
			if err := s.Put(ctx, tenant, "a", nil); !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", tenant, err)
			}
			if _, err := s.List(ctx, tenant, ""); !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", tenant, err)
			}
		}
	})
}

func TestLinksDoNotLeadOut(t *testing.T) {
	at := t.TempDir()
	s := open(t, at)
	put(t, s, "t1", "a", "x")
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(at, "tenants/t1/link")); err != nil {
		t.Fatal(err)
	}
	if data, err := s.Get(context.Background(), "t1", "link"); err == nil {
		t.Errorf("read %q through a link", data)
	}
}

// TestNoPartsAreSeen: a reader sees a whole object, whatever writers do.
func TestNoPartsAreSeen(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		put(t, s, "t1", "k", strings.Repeat("0", 50_000))
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for range 10 {
					put(t, s, "t1", "k", strings.Repeat(string(rune('1'+w)), 50_000))
					got, err := s.Get(context.Background(), "t1", "k")
					if err != nil || len(got) != 50_000 || len(bytes.Trim(got, string(got[:1]))) != 0 {
						t.Errorf("%d bytes, %v", len(got), err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestStoreThatIsDown(t *testing.T) {
	server := httptest.NewServer(s3test.New("objects"))
	address := strings.Replace(server.URL, "http://", "s3://key:secret@", 1)
	s := open(t, address+"/objects?insecure=true&region=us-east-1")
	for _, bad := range []string{address + "/nothing?insecure=true&region=us-east-1", "s3://", "s3://host", "s3://user:pass word@%zz/"} {
		_, err := Open(context.Background(), bad)
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "pass word") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	server.Close()
	if _, err := s.Get(context.Background(), "t1", "k"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Get(done, "t1", "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestOldPartsGo(t *testing.T) {
	at := t.TempDir()
	put(t, open(t, at), "t1", "a", "x")
	for name, age := range map[string]time.Duration{"old": 2 * time.Hour, "young": time.Minute} {
		path := filepath.Join(at, parts, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	open(t, at)
	if _, err := os.Stat(filepath.Join(at, parts, "old")); err == nil {
		t.Error("an old part stays")
	}
	if _, err := os.Stat(filepath.Join(at, parts, "young")); err != nil {
		t.Error("a young part goes: somebody may be writing it")
	}
}
