package blob

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// dir is a store in a folder. All access goes through an os.Root, so that not
// even a symbolic link leads out of it.
type dir struct {
	root *os.Root
}

// parts is where objects lie while they are being written.
const parts = "parts"

func openDir(at string) (*dir, error) {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	d := &dir{root: root}
	if err := d.removeOldFiles(); err != nil {
		return nil, errors.Join(fmt.Errorf("blob: %w", err), root.Close())
	}
	return d, nil
}

// removeOldFiles removes what killed processes were writing: parts that are older than any
// write takes, by the clock of the file system.
func (d *dir) removeOldFiles() error {
	if err := d.root.MkdirAll(parts, 0o700); err != nil {
		return err
	}
	stamp := parts + "/now"
	if err := d.root.WriteFile(stamp, nil, 0o600); err != nil {
		return err
	}
	now, err := d.root.Stat(stamp)
	if err != nil {
		return err
	}
	list, err := fs.ReadDir(d.root.FS(), parts)
	if err != nil {
		return err
	}
	for _, e := range list {
		info, err := e.Info()
		if err == nil && now.ModTime().Sub(info.ModTime()) > time.Hour {
			if err := d.root.Remove(parts + "/" + e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// Close ends the use of the folder.
func (d *dir) Close() error { return d.root.Close() }

// Put writes beside, syncs, and renames.
func (d *dir) Put(_ context.Context, tenant scope.TenantID, key string, data []byte) error {
	name, err := locate(tenant, key)
	if err != nil {
		return err
	}
	if len(data) > MaxBytes {
		return fault.Newf(fault.TooLarge, "object_size", "an object has at most %d bytes", MaxBytes)
	}
	random := make([]byte, 12)
	_, _ = rand.Read(random) // never fails
	tmp := parts + "/" + hex.EncodeToString(random)
	f, err := d.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return diskFault(err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = d.root.MkdirAll(path.Dir(name), 0o700)
	}
	if err == nil {
		err = d.root.Rename(tmp, name)
	}
	if err != nil {
		return diskFault(errors.Join(err, d.root.Remove(tmp)))
	}
	return diskFault(d.syncDir(path.Dir(name)))
}

// syncDir makes a rename survive a power cut.
func (d *dir) syncDir(name string) error {
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Get reads a file.
func (d *dir) Get(_ context.Context, tenant scope.TenantID, key string) ([]byte, error) {
	name, err := locate(tenant, key)
	if err != nil {
		return nil, err
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, diskFault(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	return data, diskFault(err)
}

// Exists looks for a file.
func (d *dir) Exists(_ context.Context, tenant scope.TenantID, key string) (bool, error) {
	name, err := locate(tenant, key)
	if err != nil {
		return false, err
	}
	info, err := d.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	return err == nil && info.Mode().IsRegular(), diskFault(err)
}

// Delete removes a file.
func (d *dir) Delete(_ context.Context, tenant scope.TenantID, key string) error {
	name, err := locate(tenant, key)
	if err != nil {
		return err
	}
	err = d.root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return diskFault(err)
}

// List walks the tenant's folder.
func (d *dir) List(ctx context.Context, tenant scope.TenantID, prefix string) ([]Info, error) {
	if !validTenant.MatchString(string(tenant)) {
		_, err := locate(tenant, "x")
		return nil, err
	}
	list := []Info{}
	base := prefixOf(tenant)
	err := fs.WalkDir(d.root.FS(), strings.TrimSuffix(base, "/"), func(name string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		key := strings.TrimPrefix(name, base)
		if !strings.HasPrefix(key, prefix) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		list = append(list, Info{Key: key, Size: info.Size(), Modified: info.ModTime().UTC()})
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []Info{}, diskFault(err)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	return list, nil
}

func diskFault(err error) error {
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return notFound(err)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.StorageFull, "storage_full", "the object store is full").Because(err)
	}
	return unavailable(err)
}
