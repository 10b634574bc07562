// Package bundlesync keeps a bouncer's bundle up to date: it polls the control plane, checks each
// bundle, activates it, and keeps the last good one on disk.
package bundlesync

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Config is what a Syncer needs.
type Config struct {
	// ID is the bouncer's id. If it is empty, the Syncer asks the control plane which bouncer the
	// token belongs to.
	ID string
	// Token is the bouncer's credential. Saved credentials are encrypted with a key derived from
	// it.
	Token string
	// Dir is the directory of the last good bundle.
	Dir string
	// Version is the version of gatehouse, for labels.
	Version string
	// InitialMode applies until the first bundle is active.
	InitialMode settings.Mode
	// Verify is the key that bundles must be signed with. If it is nil, signatures are not checked.
	Verify *bundle.Verify
	// Wait is the longest time that the control plane may hold a poll.
	Wait time.Duration
	// Reader turns the configuration in a bundle into settings.
	Reader settings.Reader
	// State receives the active state.
	State *atomic.Pointer[settings.State]
	// OnActivated is called when a bundle has become active, OnChanged when there is something new to
	// report, and OnPanic when reading a bundle panicked.
	Activated, Changed func()
	Panicked           func(what string, p any)

	Client  *controlplane.Client
	IDs     *ids.Source
	Count   *metrics.Counters
	Log     *slog.Logger
	Now     func() time.Time
	Entropy io.Reader
}

// Syncer is the bundle client. Create it with New. Only Run and Restore change it.
type Syncer struct {
	Config
	labels  atomic.Pointer[[]byte]
	contact atomic.Pointer[time.Time]

	mu       sync.Mutex
	progress Progress
}

// New returns a Syncer, in the state of a bouncer without a bundle.
func New(c Config) *Syncer {
	f := &Syncer{Config: c}
	f.State.Store(f.initial())
	f.confirmedAt(time.Time{})
	f.relabel("")
	return f
}

// initial returns the state of a bouncer without a bundle.
func (f *Syncer) initial() *settings.State {
	return &settings.State{Settings: settings.Initial(f.InitialMode, f.Reader.Trusted)}
}

// Progress returns the current progress.
func (f *Syncer) Progress() Progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress
}

// LabelMap identifies the bouncer in reports, as OPA's labels do.
func (f *Syncer) LabelMap() map[string]string {
	return map[string]string{"bouncer": f.Progress().ID, "id": "gatehouse-bouncer", "version": f.Version}
}

// Labels returns the beginning of each event of the decision log, up to and including the labels.
// Callers must not change it.
func (f *Syncer) Labels() []byte { return *f.labels.Load() }

// relabel records the bouncer's id, and rebuilds the labels.
func (f *Syncer) relabel(id string) {
	f.mu.Lock()
	f.progress.ID = id
	f.mu.Unlock()
	data, err := json.Marshal(f.LabelMap())
	if err != nil {
		data = []byte("{}")
	}
	line := append([]byte(`{"labels":`), data...)
	f.labels.Store(&line)
}

func (f *Syncer) confirmedAt(t time.Time) { f.contact.Store(&t) }

// LastContact returns when the control plane last confirmed the bundle.
func (f *Syncer) LastContact() time.Time { return *f.contact.Load() }

// SinceContact returns the time since the control plane last confirmed the bundle.
func (f *Syncer) SinceContact(now time.Time) time.Duration { return now.Sub(f.LastContact()) }

// Ready reports whether the bouncer can decide: a bundle is active, and it is not older than
// max_stale allows.
func (f *Syncer) Ready(st *settings.State) bool {
	return st.Set != nil && (st.MaxStale == 0 || f.SinceContact(f.Now()) <= st.MaxStale)
}

// Times of the bundle client.
const (
	retryMin = 100 * time.Millisecond
	// retryMax with its jitter is under ten seconds: by then a bouncer must have caught up with a
	// control plane that is back.
	retryMax = 6 * time.Second
	// spinGuard is the shortest time between two unchanged answers, so that a control plane that
	// does not hold polls is not polled in a tight loop.
	spinGuard = time.Second
)

// noBundleTag is an ETag that no bundle has: revisions start at 1.
const noBundleTag = `"0"`

// Progress is the state of the bundle client.
type Progress struct {
	// ID is the bouncer's id, in the bundle's address.
	ID string
	// ETag is that of the active bundle, Refused that of a bundle which is not downloaded again.
	ETag, Refused string
	// Size is the size of the active bundle, in bytes.
	Size int
	// Request, Download and Active are when a bundle was last requested, downloaded and activated.
	Request, Download, Active time.Time
	// Err is the error of the last attempt, or nil.
	Err *SyncError
	// Denied is true while the control plane rejects the bouncer's credential.
	Denied bool

	identified bool // the control plane has confirmed which bouncer the token belongs to
}

// SyncError says why a bundle did not become active, in the form of status reports.
type SyncError struct {
	Code, Message string
	// HTTPCode is the status of the control plane's answer, or 0 without one.
	HTTPCode int
	// File and Issues locate the errors in a control that does not compile.
	File   string
	Issues []lang.Issue
}

// Error implements error.
func (e *SyncError) Error() string { return e.Code + ": " + e.Message }

// Restore activates the saved bundle, so that a bouncer that starts while the control plane is down
// continues where it stopped.
func (f *Syncer) Restore() {
	head, data, contact, err := controlplane.LoadBundle(f.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil && f.ID != "" && head.Bouncer != f.ID {
		err = errForeignCopy
	}
	if err == nil {
		err = f.activate(data, head.Bouncer, true, f.savedCredentials)
	}
	if err != nil {
		f.Log.Error("the saved bundle is not usable; waiting for the control plane", "error", err)
		return
	}
	etag := head.ETag
	if f.State.Load().KeyClosed {
		etag = "" // the token has changed since, so fetch the bundle again for its key
	}
	f.mu.Lock()
	f.progress.ETag, f.progress.Size = etag, len(data)
	f.mu.Unlock()
	f.relabel(head.Bouncer)
	f.confirmedAt(contact)
	f.Log.Info("the saved bundle is active", "revision", head.Revision, "confirmed", contact.UTC())
}

// Run keeps the bundle up to date until ctx ends. It sends one long poll after the other, with
// growing pauses while the control plane is down.
func (f *Syncer) Run(ctx context.Context) {
	wait := retryMin
	for ctx.Err() == nil {
		began, refused := f.Now(), f.RefusedTag()
		changed, err := f.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		f.noteOutcome(err)
		switch {
		case err != nil:
			f.Log.Warn("the bundle could not be updated", "error", err)
			f.Changed()
			if f.RefusedTag() != refused {
				wait = retryMin // a new bundle was refused: the next one may be fixed already
			}
			if !pause.For(ctx, f.IDs.Jitter(max(wait, controlplane.RetryAfter(err)))) {
				return
			}
			wait = min(2*wait, retryMax)
		case changed:
			wait = retryMin
			f.Changed()
		default:
			wait = retryMin
			if f.Now().Sub(began) < spinGuard && !pause.For(ctx, f.IDs.Jitter(spinGuard)) {
				return
			}
		}
	}
}

// RefusedTag returns the ETag of the last refused bundle, until another one is accepted.
func (f *Syncer) RefusedTag() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress.Refused
}

// noteOutcome records the result of a poll for the status report.
func (f *Syncer) noteOutcome(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	refused, isRefused := errors.AsType[*SyncError](err)
	statusErr, isStatus := errors.AsType[*controlplane.StatusError](err)
	switch {
	case err == nil:
		f.progress.Denied = false
		if f.progress.Refused == "" {
			f.progress.Err = nil
		}
	case isRefused:
		f.progress.Err = refused
	case isStatus:
		f.progress.Err = &SyncError{Code: "bundle_error", Message: statusErr.Error(), HTTPCode: statusErr.Code}
		f.progress.Denied = statusErr.Code == http.StatusUnauthorized || statusErr.Code == http.StatusForbidden
	default:
		f.progress.Err = &SyncError{Code: "bundle_error", Message: err.Error()}
	}
}

// poll sends one request. changed is true if another bundle became active.
func (f *Syncer) poll(ctx context.Context) (changed bool, err error) {
	f.mu.Lock()
	s := f.progress
	f.mu.Unlock()
	if !s.identified {
		if s, err = f.identifySelf(ctx); err != nil {
			return false, err
		}
	}
	park := f.pollWait()
	ctx, cancel := context.WithTimeout(ctx, park+30*time.Second)
	defer cancel()
	req, err := f.Client.Request(ctx, http.MethodGet, "/bridge/bundles/"+s.ID, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Prefer", "modes=snapshot;wait="+strconv.Itoa(int(park/time.Second)))
	req.Header.Set("Accept", "application/vnd.openpolicyagent.bundles, application/gzip")
	var tags []string
	if s.ETag != "" {
		tags = append(tags, s.ETag)
	}
	if s.Refused != "" {
		if s.ETag == "" {
			tags = append(tags, noBundleTag) // the first tag is the active bundle, and there is none
		}
		tags = append(tags, s.Refused)
	}
	if len(tags) > 0 {
		req.Header.Set("If-None-Match", strings.Join(tags, ", "))
	}
	nonce, err := f.nonce()
	if err != nil {
		return false, err
	}
	if nonce != "" {
		req.Header.Set(HeaderNonce, nonce)
	}
	f.mu.Lock()
	f.progress.Request = f.Now()
	f.mu.Unlock()
	resp, err := f.Client.Do(req)
	if err != nil {
		return false, fmt.Errorf("the control plane cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotModified:
		if err := f.verifyFresh(resp.Header, nonce, s.ID, s.ETag, s.Refused); err != nil {
			return false, err
		}
		f.noteConfirmed()
		return false, nil
	case http.StatusOK:
		data, err := io.ReadAll(io.LimitReader(resp.Body, controlplane.MaxBundle+1))
		if err != nil {
			return false, fmt.Errorf("the bundle is incomplete: %w", err)
		}
		tag := resp.Header.Get("ETag")
		unproven := f.verifyFresh(resp.Header, nonce, s.ID, tag)
		if changed, err = f.takeBundle(ctx, data, tag, s.ID, unproven == nil); err == nil {
			err = unproven
		}
		return changed, err
	}
	return false, controlplane.ErrorOf(resp)
}

// To prove that an answer to a poll is fresh, the control plane signs the bouncer's nonce and the
// current revision with the key of the bundles.
const (
	// HeaderNonce is the request header with the nonce.
	HeaderNonce = "X-Gatehouse-Nonce"
	// HeaderFresh is the response header with the signature.
	HeaderFresh = "X-Gatehouse-Fresh"
)

// nonce returns a new nonce if bundles must be signed, or "".
func (f *Syncer) nonce() (string, error) {
	if f.Verify == nil {
		return "", nil
	}
	var raw [16]byte
	if _, err := io.ReadFull(f.Entropy, raw[:]); err != nil {
		return "", fmt.Errorf("a nonce: %w", err)
	}
	return hex.EncodeToString(raw[:]), nil
}

// verifyFresh checks that an answer was made by the control plane for this nonce, and confirms one
// of the tags. So nobody can replay "not modified" for ever. An answer without proof confirms
// nothing, and the status report says so.
func (f *Syncer) verifyFresh(h http.Header, nonce, id string, tags ...string) error {
	if f.Verify == nil {
		return nil
	}
	unproven := func(message string) error {
		f.Count.BundlesUnproven.Add(1)
		return &SyncError{Code: "bundle_unconfirmed", Message: message}
	}
	fresh, err := f.Verify.CheckFresh(h.Get(HeaderFresh), nonce)
	switch {
	case err != nil:
		return unproven(err.Error())
	case strconv.FormatInt(fresh.Bouncer, 10) != id:
		return unproven("the proof that the answer is fresh belongs to another bouncer")
	case fresh.Revision == "" || !slices.Contains(tags, fresh.Revision):
		return unproven("the control plane confirms revision " + fresh.Revision + ", which did not arrive")
	}
	return nil
}

// noteConfirmed records that the control plane has confirmed the active bundle.
func (f *Syncer) noteConfirmed() {
	now := f.Now()
	f.confirmedAt(now)
	controlplane.ConfirmBundle(f.Dir, now)
}

// pollWait returns how long the control plane may hold a poll. Each answer confirms the bundle, so
// several polls must fit into max_stale.
func (f *Syncer) pollWait() time.Duration {
	if stale := f.State.Load().MaxStale; stale > 0 {
		return max(min(f.Wait, stale/3), time.Second)
	}
	return f.Wait
}

var errForeignCopy = errors.New("the saved bundle belongs to another bouncer")

// identifySelf asks which bouncer this is, once before the first poll. It drops a bundle that
// another bouncer saved in this directory.
func (f *Syncer) identifySelf(ctx context.Context) (Progress, error) {
	id, err := f.whoAmI(ctx)
	if err != nil {
		return Progress{}, err
	}
	f.mu.Lock()
	foreign := f.progress.ID != "" && f.progress.ID != id
	if foreign {
		f.progress.ETag, f.progress.Size = "", 0
	}
	f.progress.identified = true
	f.mu.Unlock()
	if foreign {
		f.Log.Error("the saved bundle is not usable; waiting for the control plane", "error", errForeignCopy)
		f.State.Store(f.initial())
		f.confirmedAt(time.Time{})
	}
	f.relabel(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress, nil
}

// whoAmI asks which bouncer the token belongs to.
func (f *Syncer) whoAmI(ctx context.Context) (string, error) {
	if f.ID != "" {
		return f.ID, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := f.Client.Request(ctx, http.MethodGet, "/bridge/self", nil)
	if err != nil {
		return "", err
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		return "", fmt.Errorf("the control plane cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", controlplane.ErrorOf(resp)
	}
	var self struct {
		ID      json.Number `json:"id"`
		Bouncer json.Number `json:"bouncer_id"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&self); err != nil {
		return "", fmt.Errorf("the control plane's answer is not JSON: %w", err)
	}
	id := self.Bouncer.String()
	if id == "" {
		id = self.ID.String()
	}
	if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return "", errors.New("the control plane does not say which bouncer this is")
	}
	return id, nil
}
