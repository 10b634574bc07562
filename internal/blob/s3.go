package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"sort"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// bucket is a store in an S3 bucket, below a prefix.
type bucket struct {
	client *minio.Client
	name   string
	prefix string // empty, or ending in a slash
}

// openS3 opens a bucket that exists. It is asked for, so that a bad address or
// credential shows at the start.
func openS3(ctx context.Context, u *url.URL) (*bucket, error) {
	name, prefix, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if u.Host == "" || name == "" {
		return nil, errors.New("blob: an S3 address must be s3://host/bucket")
	}
	if prefix != "" {
		prefix += "/"
	}
	access, secret, token := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")
	if u.User != nil {
		access, token = u.User.Username(), ""
		secret, _ = u.User.Password()
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:      credentials.NewStaticV4(access, secret, token),
		Secure:     u.Query().Get("insecure") != "true",
		Region:     u.Query().Get("region"),
		MaxRetries: 3,
	})
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	there, err := client.BucketExists(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("blob: bucket %s: %w", name, err)
	}
	if !there {
		return nil, fmt.Errorf("blob: there is no bucket %s", name)
	}
	return &bucket{client: client, name: name, prefix: prefix}, nil
}

// Close has nothing to end.
func (b *bucket) Close() error { return nil }

func (b *bucket) locate(tenant scope.TenantID, key string) (string, error) {
	name, err := locate(tenant, key)
	return b.prefix + name, err
}

// Put uploads an object.
func (b *bucket) Put(ctx context.Context, tenant scope.TenantID, key string, data []byte) error {
	name, err := b.locate(tenant, key)
	if err != nil {
		return err
	}
	if len(data) > MaxBytes {
		return fault.Newf(fault.TooLarge, "object_size", "an object has at most %d bytes", MaxBytes)
	}
	_, err = b.client.PutObject(ctx, b.name, name, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{ContentType: "application/octet-stream"})
	return s3Fault(ctx, err)
}

// Get downloads an object.
func (b *bucket) Get(ctx context.Context, tenant scope.TenantID, key string) ([]byte, error) {
	name, err := b.locate(tenant, key)
	if err != nil {
		return nil, err
	}
	o, err := b.client.GetObject(ctx, b.name, name, minio.GetObjectOptions{})
	if err != nil {
		return nil, s3Fault(ctx, err)
	}
	defer o.Close()
	data, err := io.ReadAll(io.LimitReader(o, MaxBytes+1))
	if err == nil && len(data) > MaxBytes {
		return nil, fault.Newf(fault.TooLarge, "object_size", "an object has at most %d bytes", MaxBytes)
	}
	return data, s3Fault(ctx, err)
}

// Exists asks for an object's metadata.
func (b *bucket) Exists(ctx context.Context, tenant scope.TenantID, key string) (bool, error) {
	name, err := b.locate(tenant, key)
	if err != nil {
		return false, err
	}
	_, err = b.client.StatObject(ctx, b.name, name, minio.StatObjectOptions{})
	err = s3Fault(ctx, err)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Delete removes an object.
func (b *bucket) Delete(ctx context.Context, tenant scope.TenantID, key string) error {
	name, err := b.locate(tenant, key)
	if err != nil {
		return err
	}
	err = s3Fault(ctx, b.client.RemoveObject(ctx, b.name, name, minio.RemoveObjectOptions{}))
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// List asks for all pages of keys.
func (b *bucket) List(ctx context.Context, tenant scope.TenantID, prefix string) ([]Info, error) {
	if _, err := locate(tenant, "x"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing, also when it is left early
	base := b.prefix + prefixOf(tenant)
	list := []Info{}
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: base + prefix, Recursive: true}) {
		if o.Err != nil {
			return []Info{}, s3Fault(ctx, o.Err)
		}
		list = append(list, Info{Key: strings.TrimPrefix(o.Key, base), Size: o.Size, Modified: o.LastModified.UTC()})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	return list, ctx.Err()
}

func s3Fault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if code := minio.ToErrorResponse(err).Code; code == minio.NoSuchKey || code == "NotFound" {
		return notFound(err)
	}
	return unavailable(err)
}
