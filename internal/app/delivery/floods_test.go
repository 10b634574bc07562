package delivery_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// diskUsage returns the size of the files in a folder.
func diskUsage(t *testing.T, dir string) (n int64) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, err := e.Info(); err == nil { // files come and go
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// TestFloods checks that refusals at the server, at a bouncer, and of callers without a credential do
// not fill the disk, and that the audit log counts them all.
func TestFloods(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app := s.Admin, apptest.NewBackend(t, nil)
	apptest.Enforce(t, a, "sandbox")
	apptest.Activate(t, a, "doors", "sandbox", "package doors\n\nallow if input.resource.path == \"/open\"\n", nil)
	b := s.Bouncer(t, a, body{"name": "door", "environment": "sandbox"}, app.Addr)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/open", 200, 5*time.Second)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	send := func(method, url, bearer, text string, want int) {
		r, err := http.NewRequest(method, url, strings.NewReader(text))
		errtest.Must(t, err)
		r.Header.Set("Content-Type", "application/json")
		if bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		res, err := client.Do(r)
		errtest.Must(t, err)
		size, _ := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != want {
			t.Fatalf("%s %s = %d with %d bytes, want %d", method, url, res.StatusCode, size, want)
		}
	}
	// Refusals with 401 leave nothing.
	before := diskUsage(t, s.Dir)
	long := strings.Repeat("z", 4000)
	for i := range 300 {
		send("POST", s.URL+"/api/v1/decisions/evaluate?x="+long, fmt.Sprint("gh_", i, long), "{}", 401)
	}
	if grown := diskUsage(t, s.Dir) - before; grown > 256<<10 {
		t.Errorf("300 callers without a credential left %d KiB, want at most 256", grown>>10)
	}
	const n = 1300
	question := `{"user":{"id":"u"},"action":{"name":"read"},"resource":{"type":"api","path":"/closed"},"context":{"note":"` + long + `"}}`
	for range n {
		send("POST", s.URL+"/api/v1/decisions/evaluate?environment=sandbox", a.Bearer, question, 200)
		send("GET", b.URL+"/closed", "", "", 403)
	}
	for range 20 {
		send("GET", b.URL+"/open", "", "", 200)
	}
	want := map[bool]int64{false: n, true: n}
	apptest.Eventually(t, 30*time.Second, func() error {
		got, folded, permits := map[bool]int64{}, 0, 0
		for _, e := range apptest.DecisionLog(t, a, "sandbox") {
			switch {
			case e.Decision == "PERMIT":
				permits++
			case e.Folded != nil:
				folded++
				got[e.BouncerID == b.ID] += e.Folded.Count
				if e.Folded.Last.Before(e.Folded.First) || len(e.Folded.Digest) != 64 {
					return fmt.Errorf("the log has the folded entry %+v, want its times in order and a digest", e.Folded)
				}
			default:
				got[e.BouncerID == b.ID]++
			}
		}
		if got[true] != want[true] || got[false] != want[false] || folded == 0 || permits < 20 {
			return fmt.Errorf("the log has %v refusals (true: at the bouncer), %d folded entries and %d permits, want %v, some and 20", got, folded, permits, want)
		}
		return nil
	})
	raw := a.Do(t, "GET", "/audit/verify", nil).Want(200).Body
	var report struct{ Valid bool }
	if err := json.Unmarshal(raw, &report); err != nil || !report.Valid {
		t.Errorf("GET /audit/verify = %s, want it valid", raw)
	}
}
