// Package blob stores objects in S3 buckets that tenants name. Every call goes through the guard of
// outbound.
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

// The schemes of addresses of objects: TLS, and plain HTTP for addresses that the operator allows.
const (
	ObjectScheme      = "s3://"
	PlainObjectScheme = "s3+http://"
)

// maxReply bounds a reply of a store that a tenant names, in bytes.
const maxReply = 1 << 20

// Object is one object in a bucket that a tenant names. Nothing else in the bucket is touched.
type Object struct {
	host, bucket, key string
	plain             bool
	// Region is that of the bucket.
	Region string
	// AccessKey and SecretKey sign the calls. SessionToken belongs to temporary ones; empty: none.
	AccessKey, SecretKey, SessionToken string
}

// ErrObject says how the address of an object must look.
var ErrObject = errors.New("must be s3://host/bucket/key")

// ParseObject reads the address of an object: s3://host[:port]/bucket/key.
func ParseObject(address string) (Object, error) {
	rest, plain := strings.CutPrefix(address, PlainObjectScheme)
	if !plain {
		var ok bool
		if rest, ok = strings.CutPrefix(address, ObjectScheme); !ok {
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

// URL is the address of the bucket's host.
func (o Object) URL() string {
	scheme := "https"
	if o.plain {
		scheme = "http"
	}
	return (&url.URL{Scheme: scheme, Host: o.host, Path: "/"}).String()
}

// client calls the store, guarded and once: whoever calls tries again.
func (o Object) client(ctx context.Context, via *outbound.Client) (*minio.Client, error) {
	return minio.New(o.host, &minio.Options{
		Creds:     credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.SessionToken),
		Transport: via.Transport(ctx, outbound.Bound{Plain: o.plain, MaxReply: maxReply}),
		Secure:    !o.plain, Region: o.Region, MaxRetries: 1,
	})
}

// Put stores data as the object. Readers see the old content or the new one.
func (o Object) Put(ctx context.Context, via *outbound.Client, data []byte, contentType string) error {
	client, err := o.client(ctx, via)
	if err != nil {
		return err
	}
	stored, err := client.PutObject(ctx, o.bucket, o.key, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{ContentType: contentType, DisableMultipart: true})
	if err == nil && stored.ETag == "" {
		err = errNoStore
	}
	return err
}

// Try stores and removes an object beside o, whose key ends in .test. The error is that of storing
// it: keys that may only store are enough.
func (o Object) Try(ctx context.Context, via *outbound.Client, data []byte) error {
	o.key += ".test"
	if err := o.Put(ctx, via, data, "text/plain"); err != nil {
		return err
	}
	client, err := o.client(ctx, via)
	if err != nil {
		return err
	}
	_ = client.RemoveObject(ctx, o.bucket, o.key, minio.RemoveObjectOptions{})
	return nil
}

// validKey is a key that no client and no server spells in another way.
var validKey = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

// errNoStore says that an answer is none of S3: every store gives an object that it stored an ETag.
// A proxy or a portal that answers everything with 200 does not.
var errNoStore = errors.New("blob: the answer has no ETag")

// errorCode is an error code of S3. Other texts of a store are not shown.
var errorCode = regexp.MustCompile(`^[A-Za-z]{1,60}$`)

// ObjectAnswer is what a store answered in place of taking an object: the HTTP status, and a text
// for people. The status is 0 if it did not answer.
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
