package enforce

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

const hashing = "package hashes\n\nallow := true\n\nmask := {\"id\": \"hash\", \"pii:emails\": \"hash\", \"header:X-Owner\": \"hash\"}\n"

// Equal values have equal hashes at any place and at each bouncer of the tenant, and other hashes in
// another tenant. No hash is the plain digest of the value. Without a key nothing is hashed.
func TestHashesAreKeyed(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Owner", "bea@example.com")
		fmt.Fprint(w, `{"id":"bea@example.com","text":"bea@example.com"}`)
	})
	keys := map[string]masking.HashKey{"one": masking.HashKey("one key that is thirty-two bytes"), "other": masking.HashKey("another, which is 32 bytes too.."), "none": nil}
	seen := map[string]string{}
	for _, who := range []string{"one", "one", "other", "none"} {
		_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", hashKey: keys[who], controls: []control{{id: 1, source: hashing}}}, nil)
		got := fetch(t, "GET", b.url+"/x", nil)
		owner := got.header.Get("X-Owner")
		if want := fmt.Sprintf(`{"id":%q,"text":%[1]q}`, owner); got.status != 200 || got.body != want {
			t.Errorf("tenant %s: %s, want %s as in the header", who, got, want)
		}
		plainDigest := sha256.Sum256([]byte("bea@example.com"))
		if strings.Contains(got.body, hex.EncodeToString(plainDigest[:])) {
			t.Errorf("tenant %s: %s, want no plain digest", who, got)
		}
		if before := seen[who]; before != "" && before != owner {
			t.Errorf("tenant %s: the hash is %s, want %s as before", who, owner, before)
		}
		seen[who] = owner
		var saved []byte
		eventually(t, "the bundle to be saved", func() bool {
			var err error
			saved, err = os.ReadFile(filepath.Join(b.cfg.DataDir, controlplane.BundleFile))
			return err == nil
		})
		if key := keys[who]; key != nil && (bytes.Contains(saved, key) || bytes.Contains(saved, []byte(hex.EncodeToString(key)))) {
			t.Errorf("tenant %s: the key is in the saved bundle in clear", who)
		}
	}
	if seen["one"] == seen["other"] || seen["none"] != masking.Redacted || !strings.HasPrefix(seen["one"], "sha256:") || len(seen["one"]) != len("sha256:")+64 {
		t.Errorf("the hashes are %v, want one for each key, and none without a key", seen)
	}
}

// After a change of its token, a bouncer cannot decrypt the key in its saved bundle. It redacts
// values, and downloads the whole bundle again.
func TestHashKeyAfterANewToken(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"7"}`)
	})
	p := newPlane(t)
	set := policySet{revision: 1, mode: "enforce", hashKey: masking.HashKey("one key that is thirty-two bytes"), token: "a former token", controls: []control{{id: 1, source: hashing}}}
	p.publish(set)
	dir := t.TempDir()
	b := start(t, p, app.URL, inDir(dir)).at(t, 1)
	if got := fetch(t, "GET", b.url+"/x", nil); got.body != `{"id":"[redacted]"}` {
		t.Errorf("with a key sealed for another token: %s, want a redacted value", got)
	}
	b.stop()
	set.token = ""
	p.publish(set)
	b = start(t, p, app.URL, inDir(dir))
	eventually(t, "the key", func() bool { return len(b.state.Load().HashKey) > 0 })
	if got := fetch(t, "GET", b.url+"/x", nil); got.body != fmt.Sprintf(`{"id":%q}`, set.hashKey.Hash([]byte("7"))) {
		t.Errorf("with the key: %s, want the keyed hash", got)
	}
}
