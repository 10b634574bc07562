package bundlesync

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
)

// takeBundle activates a downloaded bundle, or returns why it is refused. The last good bundle
// stays active then. fresh means that the control plane has just confirmed this revision.
func (f *Syncer) takeBundle(ctx context.Context, data []byte, etag, id string, fresh bool) (bool, error) {
	now := f.Now()
	f.mu.Lock()
	f.progress.Download = now
	f.mu.Unlock()
	var err error
	if len(data) > controlplane.MaxBundle {
		err = &SyncError{Code: "bundle_too_large", Message: "the bundle is over 64 MiB"}
	} else {
		err = f.activate(data, id, false, func(id string, least int64) (*settings.Credentials, error) { return f.fetchCredentials(ctx, id, least) })
	}
	if errors.Is(err, settings.ErrNoCredentials) {
		return false, err // the bundle is good, and the next poll fetches it again
	}
	if err != nil {
		f.Count.BundlesRefused.Add(1)
		f.mu.Lock()
		f.progress.Refused = etag
		f.mu.Unlock()
		return false, err
	}
	f.Count.BundlesActivated.Add(1)
	st := f.State.Load()
	f.mu.Lock()
	f.progress.ETag, f.progress.Refused, f.progress.Size, f.progress.Active, f.progress.Err = etag, "", len(data), now, nil
	f.mu.Unlock()
	if fresh {
		f.confirmedAt(now)
	}
	if err := controlplane.SaveBundle(f.Dir, controlplane.SavedHead{Bouncer: id, Revision: st.Revision, ETag: etag}, data); err != nil {
		f.Count.SaveFailures.Add(1)
		f.Log.Error("the bundle is active but could not be saved for a restart", "error", err)
	}
	if st.Signed && f.Verify == nil {
		f.Log.Warn("bundles are signed but not verified: set GATEHOUSE_BOUNCER_VERIFY_KEY to the key that the registration of the bouncer returned")
	}
	f.Log.Info("a bundle is active", "revision", st.Revision, "mode", st.Mode.String(), "controls", st.Controls)
	return true, nil
}

// activate reads a bundle and makes it the active one as a whole, or returns an error. obtain
// returns the credentials that belong to it. stored means that the bundle was active before a
// restart.
func (f *Syncer) activate(data []byte, id string, stored bool, obtain func(id string, least int64) (*settings.Credentials, error)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			f.Panicked("reading a bundle panicked", p)
			err = &SyncError{Code: "bundle_error", Message: "reading the bundle panicked: " + fault.DescribePanic(p)}
		}
	}()
	before := f.State.Load()
	read, err := bundle.Reader{Verify: f.Verify, Active: before.Set, Stored: stored}.Read(data)
	if err != nil {
		return refusedBundle(err)
	}
	if isOlder(read.Revision, before.Revision) {
		return &SyncError{Code: "bundle_rollback", Message: fmt.Sprintf("revision %s is older than %s, which is active", read.Revision, before.Revision)}
	}
	s, err := f.Reader.Read(read, before.Settings)
	if err != nil {
		return &SyncError{Code: "bundle_configuration", Message: err.Error()}
	}
	if s.Bouncer != "" && id != "" && s.Bouncer != id {
		return &SyncError{Code: "bundle_foreign", Message: "the bundle is another bouncer's"}
	}
	if s.Environment == "" {
		s.Environment = read.Env
	}
	var creds *settings.Credentials
	if s.CredentialsNo > 0 {
		if creds, err = obtain(s.Bouncer, s.CredentialsNo); err != nil {
			return err
		}
	}
	f.State.Store(&settings.State{Settings: s, Credentials: creds, Set: read.Set, Revision: read.Revision, Activated: f.Now(), Controls: len(read.Set.Controls())})
	f.Activated()
	return nil
}

// refusedBundle keeps the location in the control that a bundle was refused for.
func refusedBundle(err error) error {
	e := &SyncError{Code: "bundle_error", Message: err.Error()}
	if cause, ok := errors.AsType[*bundle.RefusedError](err); ok {
		e.Code, e.Issues = "rego_compile_error", cause.Issues
		e.File = "gatehouse/controls/c" + strconv.FormatInt(cause.Control, 10) + ".rego"
	}
	return e
}

// isOlder compares revisions that end in a number. Others have no order.
func isOlder(next, now string) bool {
	n, ok := revisionNumber(next)
	active, known := revisionNumber(now)
	return ok && known && n < active
}

func revisionNumber(rev string) (int64, bool) {
	i := len(rev)
	for i > 0 && rev[i-1] >= '0' && rev[i-1] <= '9' {
		i--
	}
	n, err := strconv.ParseInt(rev[i:], 10, 64)
	return n, err == nil
}
