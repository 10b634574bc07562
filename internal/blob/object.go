// Package blob stores objects in S3 buckets that tenants name. All calls go through package
// outbound, which refuses addresses that the operator does not allow.
package blob

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// The schemes of object addresses: TLS, and plain HTTP for addresses that the operator allows.
const (
	objectScheme      = "s3://"
	plainObjectScheme = "s3+http://"
)

// maxReply is the largest reply of a store, in bytes.
const maxReply = 1 << 20

// Object is one object in a bucket that a tenant names.
type Object struct {
	host, bucket, key string
	plain             bool
	// Region is the region of the bucket.
	Region string
	// AccessKey and SecretKey sign the calls. SessionToken belongs to temporary keys; "": none.
	AccessKey, SecretKey, SessionToken string
}

// ErrObject is the error for an address that is not that of an object.
var ErrObject = errors.New("must be s3://host/bucket/key")

// ParseObject reads the address of an object: s3://host[:port]/bucket/key.
func ParseObject(address string) (Object, error) {
	rest, plain := strings.CutPrefix(address, plainObjectScheme)
	if !plain {
		var ok bool
		if rest, ok = strings.CutPrefix(address, objectScheme); !ok {
			return Object{}, ErrObject
		}
	}
	host, path, _ := strings.Cut(rest, "/")
	name, key, _ := strings.Cut(path, "/")
	if host == "" || !validKey.MatchString(key) || len(key) > 900 || s3utils.CheckValidBucketNameStrict(name) != nil {
		return Object{}, ErrObject
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "." || part == ".." {
			return Object{}, ErrObject
		}
	}
	return Object{host: host, bucket: name, key: key, plain: plain}, nil
}

// URL returns the URL of the bucket's host.
func (o Object) URL() string {
	scheme := "https"
	if o.plain {
		scheme = "http"
	}
	return (&url.URL{Scheme: scheme, Host: o.host, Path: "/"}).String()
}

// client returns a client for the store. It does not retry, because the callers do.
func (o Object) client(ctx context.Context, via *outbound.Client) (*minio.Client, error) {
	return minio.New(o.host, &minio.Options{
		Creds:     credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.SessionToken),
		Transport: via.Transport(ctx, outbound.Bound{Plain: o.plain, MaxReply: maxReply}),
		Secure:    !o.plain, Region: o.Region, MaxRetries: 1,
	})
}

// Put stores data as the object, and returns its ETag. Readers see either the old content or the new
// one.
func (o Object) Put(ctx context.Context, via *outbound.Client, data []byte, contentType string) (etag string, err error) {
	client, err := o.client(ctx, via)
	if err != nil {
		return "", err
	}
	stored, err := client.PutObject(ctx, o.bucket, o.key, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{ContentType: contentType, DisableMultipart: true})
	if err == nil && stored.ETag == "" {
		err = errNoStore
	}
	return stored.ETag, err
}

// Current returns the ETag of the object that the store has; empty: it has none.
func (o Object) Current(ctx context.Context, via *outbound.Client) (etag string, err error) {
	client, err := o.client(ctx, via)
	if err != nil {
		return "", err
	}
	at, err := client.StatObject(ctx, o.bucket, o.key, minio.StatObjectOptions{})
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok && answer.StatusCode == 404 {
		return "", nil
	}
	if err == nil && at.ETag == "" {
		err = errNoStore
	}
	return at.ETag, err
}

// Try stores a test object, whose key is that of o with .test appended, and removes it. It returns
// only errors of storing it, because keys without permission to delete are enough.
func (o Object) Try(ctx context.Context, via *outbound.Client, data []byte) error {
	o.key += ".test"
	if _, err := o.Put(ctx, via, data, "text/plain"); err != nil {
		return err
	}
	client, err := o.client(ctx, via)
	if err != nil {
		return err
	}
	_ = client.RemoveObject(ctx, o.bucket, o.key, minio.RemoveObjectOptions{})
	return nil
}

// validKey matches keys that all clients and servers spell in the same way.
var validKey = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

// errNoStore means that an answer does not come from an S3 store: every store returns an ETag for
// an object that it stored. A proxy or a portal that answers everything with 200 does not.
var errNoStore = errors.New("blob: the answer has no ETag")

// errorCode matches an error code of S3. Other texts of a store are not shown.
var errorCode = regexp.MustCompile(`^[A-Za-z]{1,60}$`)

// ObjectAnswer describes why a store refused a call: the HTTP status, and a text for people. The
// status is 0 if the store did not answer.
func ObjectAnswer(err error) (status int, text string) {
	if errors.Is(err, errNoStore) {
		return 0, "the answer is not that of an object store: something else may answer in its place"
	}
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok || answer.StatusCode == 0 {
		return 0, "the object store could not be reached"
	}
	text = "the object store answered " + strconv.Itoa(answer.StatusCode)
	if errorCode.MatchString(answer.Code) {
		text += " " + answer.Code
	}
	return answer.StatusCode, text
}
