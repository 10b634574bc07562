package bundlesync

import (
	"cmp"
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
func (s *Syncer) takeBundle(ctx context.Context, data []byte, etag, id string, fresh bool) (bool, error) {
	now := s.Now()
	s.mu.Lock()
	s.progress.Download = now
	s.mu.Unlock()
	var err error
	if len(data) > controlplane.MaxBundle {
		err = &SyncError{Code: "bundle_too_large", Message: "the bundle is over 64 MiB"}
	} else {
		err = s.activate(data, id, false, func(id string, least int64) (*settings.Credentials, error) { return s.fetchCredentials(ctx, id, least) })
	}
	if errors.Is(err, settings.ErrNoCredentials) {
		return false, err // the bundle is good, and the next poll fetches it again
	}
	if err != nil {
		s.Count.BundlesRefused.Add(1)
		s.mu.Lock()
		s.progress.Refused = etag
		s.mu.Unlock()
		return false, err
	}
	s.Count.BundlesActivated.Add(1)
	st := s.State.Load()
	s.mu.Lock()
	s.progress.ETag, s.progress.Refused, s.progress.Size, s.progress.Active, s.progress.Err = etag, "", len(data), now, nil
	s.mu.Unlock()
	if fresh {
		s.confirmedAt(now)
	}
	if err := controlplane.SaveBundle(s.Dir, controlplane.SavedHead{Bouncer: id, Revision: st.Revision, ETag: etag}, data); err != nil {
		s.Count.SaveFailures.Add(1)
		s.Log.Error("the bundle is active but could not be saved for a restart", "error", err)
	}
	if st.Signed && s.Verify == nil {
		s.Log.Warn("bundles are signed but not verified: set GATEHOUSE_BOUNCER_VERIFY_KEY to the key that the registration of the bouncer returned")
	}
	s.Log.Info("a bundle is active", "revision", st.Revision, "mode", st.Mode.String(), "controls", st.Controls)
	return true, nil
}

// activate reads a bundle and makes it the active one as a whole, or returns an error. obtain
// returns the credentials that belong to it. stored means that the bundle was active before a
// restart.
func (s *Syncer) activate(data []byte, id string, stored bool, obtain func(id string, least int64) (*settings.Credentials, error)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Panicked("reading a bundle panicked", p)
			err = &SyncError{Code: "bundle_error", Message: "reading the bundle panicked: " + fault.DescribePanic(p)}
		}
	}()
	before := s.State.Load()
	read, err := bundle.Reader{Verify: s.Verify, Active: before.Set, Stored: stored}.Read(data)
	if err != nil {
		return refusedBundle(err)
	}
	if isOlder(read.Revision, before.Revision) {
		return &SyncError{Code: "bundle_rollback", Message: fmt.Sprintf("revision %s is older than %s, which is active", read.Revision, before.Revision)}
	}
	next, err := s.Reader.Read(read, before.Settings)
	if err != nil {
		return &SyncError{Code: "bundle_configuration", Message: err.Error()}
	}
	if next.Bouncer != "" && id != "" && next.Bouncer != id {
		return &SyncError{Code: "bundle_foreign", Message: "the bundle is another bouncer's"}
	}
	next.Environment = cmp.Or(next.Environment, read.Env)
	var creds *settings.Credentials
	if next.CredentialsNo > 0 {
		if creds, err = obtain(next.Bouncer, next.CredentialsNo); err != nil {
			return err
		}
	}
	s.State.Store(&settings.State{Settings: next, Credentials: creds, Set: read.Set, Revision: read.Revision, Activated: s.Now(), Controls: len(read.Set.Controls())})
	s.Activated()
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
