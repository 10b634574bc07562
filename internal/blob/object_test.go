package blob

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/blob/s3test"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
)

// TestObject checks that an object is stored with a signed call, that Try leaves nothing behind,
// and that errors are reported.
func TestObject(t *testing.T) {
	ctx := context.Background()
	fake := s3test.New("policies")
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	address := strings.Replace(server.URL, "http://", plainObjectScheme, 1)
	here := outboundtest.Local(t)
	object := func(address, access, secret string) Object {
		o, err := ParseObject(address)
		errtest.Must(t, err)
		o.Region, o.AccessKey, o.SecretKey = "eu-west-1", access, secret
		return o
	}
	good := object(address+"/policies/edge/bundle.tar.gz", s3test.AccessKey, s3test.SecretKey)
	for _, content := range []string{"one", strings.Repeat("two", 100_000)} {
		etag, err := good.Put(ctx, here, []byte(content), "application/gzip")
		if err != nil || string(fake.Object("edge/bundle.tar.gz")) != content {
			t.Errorf("%.20q: %v", content, err)
		}
		if now, err := good.Current(ctx, here); err != nil || etag == "" || now != etag {
			t.Errorf("%.20q: stored as %q, there is %q, %v", content, etag, now, err)
		}
	}
	if now, err := object(address+"/policies/other", s3test.AccessKey, s3test.SecretKey).Current(ctx, here); err != nil || now != "" {
		t.Errorf("an object that is not there: %q, %v", now, err)
	}
	if _, err := object(address+"/policies/edge/bundle.tar.gz", s3test.AccessKey, "wrong").Current(ctx, here); err == nil {
		t.Error("a wrong key may read")
	}
	if err := good.Try(ctx, here, []byte("test")); err != nil || fake.Object("edge/bundle.tar.gz.test") != nil || !slices.Contains(fake.Puts(), "edge/bundle.tar.gz.test") {
		t.Errorf("Try = %v after the puts %v, want a test object that is removed", err, fake.Puts())
	}
	for want, o := range map[string]Object{
		"the object store answered 403 SignatureDoesNotMatch": object(address+"/policies/x", s3test.AccessKey, "wrong"),
		"the object store answered 403 InvalidAccessKeyId":    object(address+"/policies/x", "nobody", s3test.SecretKey),
		"the object store answered 404 NoSuchBucket":          object(address+"/nowhere/x", s3test.AccessKey, s3test.SecretKey),
		"the object store could not be reached":               object(strings.Replace(address, "s3+http", "s3", 1)+"/policies/x", s3test.AccessKey, s3test.SecretKey),
	} {
		_, refused := o.Put(ctx, here, []byte("x"), "text/plain")
		for does, err := range map[string]error{"put": refused, "try": o.Try(ctx, here, []byte("x"))} {
			if err == nil {
				t.Errorf("%s with %s succeeds, want an error", does, want)
			} else if _, text := ObjectAnswer(err); text != want {
				t.Errorf("%s: %q, want %q (%v)", does, text, want, err)
			}
		}
	}
	if _, err := good.Put(ctx, outboundtest.New(t, outbound.Config{}), []byte("x"), "text/plain"); err == nil || string(fake.Object("edge/bundle.tar.gz")) == "x" {
		t.Errorf("a store at a loopback address was called: %v", err)
	}
	for _, bad := range []string{"", "s3://", "s3://host", "s3://host/bucket", "s3://host/bucket/", "s3://host/B_/x", "s3://host/bucket/a//b", "s3://host/bucket/../x", "s3://host/bucket/x?y", "https://host/bucket/x"} {
		if _, err := ParseObject(bad); err == nil {
			t.Errorf("ParseObject(%s) succeeds, want an error", bad)
		}
	}
}

// TestNoStore checks that a server that answers 200 to everything is not taken for a store.
func TestNoStore(t *testing.T) {
	for name, page := range map[string]string{"nothing": "", "a page": "<html>Please sign in</html>"} {
		portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, page)
		}))
		t.Cleanup(portal.Close)
		o, err := ParseObject(strings.Replace(portal.URL, "http://", plainObjectScheme, 1) + "/policies/x")
		errtest.Must(t, err)
		o.Region, o.AccessKey, o.SecretKey = "eu-west-1", s3test.AccessKey, s3test.SecretKey
		via := outboundtest.Local(t)
		if _, err := o.Put(context.Background(), via, []byte("x"), "text/plain"); err == nil {
			t.Errorf("%s: stored", name)
		} else if status, text := ObjectAnswer(err); status != 0 || !strings.Contains(text, "something else") {
			t.Errorf("answer of %s = %d %s (%v), want something else", name, status, text, err)
		}
	}
}
