// Package blob keeps objects that are too large, or too many, for the database:
// bundles, aged audit. They lie in a folder of this machine or in an S3 bucket,
// each tenant's under a prefix of its own, which no key can leave.
package blob

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// MaxBytes is the size of the largest object.
const MaxBytes = 1 << 30

// Info tells of one object.
type Info struct {
	Key      string
	Size     int64 // bytes
	Modified time.Time
}

// Store holds objects. Keys are relative paths: names of letters, digits and
// ._- with slashes between them; another key is an Invalid fault. A missing
// object is a NotFound fault (blob_not_found), a store that does not answer an
// Unavailable one. Stores are safe for concurrent use.
type Store interface {
	// Put stores data under key, in place of what was there. Readers see the old
	// object or the new one, never a part.
	Put(ctx context.Context, tenant scope.TenantID, key string, data []byte) error
	// Get reads an object.
	Get(ctx context.Context, tenant scope.TenantID, key string) ([]byte, error)
	// Exists reports whether an object is there.
	Exists(ctx context.Context, tenant scope.TenantID, key string) (bool, error)
	// Delete removes an object; one that is not there is no error.
	Delete(ctx context.Context, tenant scope.TenantID, key string) error
	// List gives the objects whose keys begin with prefix, in order of their keys.
	List(ctx context.Context, tenant scope.TenantID, prefix string) ([]Info, error)
	// Close ends the store's use.
	Close() error
}

// Open opens the store at an address: a folder's path, or
// s3://[access:secret@]host/bucket[/prefix][?region=...&insecure=true], where the
// credentials default to those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
func Open(ctx context.Context, address string) (Store, error) {
	if !strings.HasPrefix(address, "s3://") {
		return openDir(address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("blob: the object store's address is not valid") // its text may hold a password
	}
	return openS3(ctx, u)
}

// Drop removes all objects of a tenant.
func Drop(ctx context.Context, s Store, tenant scope.TenantID) error {
	list, err := s.List(ctx, tenant, "")
	if err != nil {
		return err
	}
	for _, o := range list {
		if err := s.Delete(ctx, tenant, o.Key); err != nil {
			return err
		}
	}
	return nil
}

var (
	validKey    = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)
	validTenant = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// locate is the full key of an object, below the store's root.
func locate(tenant scope.TenantID, key string) (string, error) {
	bad := len(key) > 512 || !validKey.MatchString(key) || !validTenant.MatchString(string(tenant))
	for name := range strings.SplitSeq(key, "/") {
		bad = bad || name == "." || name == ".." || len(name) > 200
	}
	if bad {
		return "", fault.New(fault.Invalid, "invalid_key", "this is not a valid object key")
	}
	return prefixOf(tenant) + key, nil
}

// prefixOf is where a tenant's objects are.
func prefixOf(tenant scope.TenantID) string { return "tenants/" + string(tenant) + "/" }

func notFound(err error) error {
	return fault.New(fault.NotFound, "blob_not_found", "there is no such object").Because(err)
}

func unavailable(err error) error {
	return fault.New(fault.Unavailable, "object_store_unavailable", "the object store does not answer").After(time.Second).Because(err)
}
