// Package bundlesync keeps a bouncer's bundle up to date: it polls the control plane, checks each
// bundle, activates it, and keeps the last good one on disk.
package bundlesync

import (
	"cmp"
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
func (s *Syncer) initial() *settings.State {
	return &settings.State{Settings: settings.Initial(s.InitialMode, s.Reader.Trusted)}
}

// Progress returns the current progress.
func (s *Syncer) Progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress
}

// LabelMap identifies the bouncer in reports, as OPA's labels do.
func (s *Syncer) LabelMap() map[string]string {
	return map[string]string{"bouncer": s.Progress().ID, "id": "gatehouse-bouncer", "version": s.Version}
}

// Labels returns the beginning of each event of the decision log, up to and including the labels.
// Callers must not change it.
func (s *Syncer) Labels() []byte { return *s.labels.Load() }

// relabel records the bouncer's id, and rebuilds the labels.
func (s *Syncer) relabel(id string) {
	s.mu.Lock()
	s.progress.ID = id
	s.mu.Unlock()
	data, err := json.Marshal(s.LabelMap())
	if err != nil {
		data = []byte("{}")
	}
	line := append([]byte(`{"labels":`), data...)
	s.labels.Store(&line)
}

func (s *Syncer) confirmedAt(t time.Time) { s.contact.Store(&t) }

// LastContact returns when the control plane last confirmed the bundle.
func (s *Syncer) LastContact() time.Time { return *s.contact.Load() }

// SinceContact returns the time since the control plane last confirmed the bundle.
func (s *Syncer) SinceContact(now time.Time) time.Duration { return now.Sub(s.LastContact()) }

// Ready reports whether the bouncer can decide: a bundle is active, and it is not older than
// max_stale allows.
func (s *Syncer) Ready(st *settings.State) bool {
	return st.Set != nil && (st.MaxStale == 0 || s.SinceContact(s.Now()) <= st.MaxStale)
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
func (s *Syncer) Restore() {
	head, data, contact, err := controlplane.LoadBundle(s.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil && s.ID != "" && head.Bouncer != s.ID {
		err = errForeignCopy
	}
	if err == nil {
		err = s.activate(data, head.Bouncer, true, s.savedCredentials)
	}
	if err != nil {
		s.Log.Error("the saved bundle is not usable; waiting for the control plane", "error", err)
		return
	}
	etag := head.ETag
	if s.State.Load().KeyClosed {
		etag = "" // the token has changed since, so fetch the bundle again for its key
	}
	s.mu.Lock()
	s.progress.ETag, s.progress.Size = etag, len(data)
	s.mu.Unlock()
	s.relabel(head.Bouncer)
	s.confirmedAt(contact)
	s.Log.Info("the saved bundle is active", "revision", head.Revision, "confirmed", contact.UTC())
}

// Run keeps the bundle up to date until ctx ends. It sends one long poll after the other, with
// growing pauses while the control plane is down.
func (s *Syncer) Run(ctx context.Context) {
	wait := retryMin
	for ctx.Err() == nil {
		began, refused := s.Now(), s.RefusedTag()
		changed, err := s.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		s.noteOutcome(err)
		switch {
		case err != nil:
			s.Log.Warn("the bundle could not be updated", "error", err)
			s.Changed()
			if s.RefusedTag() != refused {
				wait = retryMin // a new bundle was refused: the next one may be fixed already
			}
			if !pause.For(ctx, s.IDs.Jitter(max(wait, controlplane.RetryAfter(err)))) {
				return
			}
			wait = min(2*wait, retryMax)
		case changed:
			wait = retryMin
			s.Changed()
		default:
			wait = retryMin
			if s.Now().Sub(began) < spinGuard && !pause.For(ctx, s.IDs.Jitter(spinGuard)) {
				return
			}
		}
	}
}

// RefusedTag returns the ETag of the last refused bundle, until another one is accepted.
func (s *Syncer) RefusedTag() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress.Refused
}

// noteOutcome records the result of a poll for the status report.
func (s *Syncer) noteOutcome(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused, isRefused := errors.AsType[*SyncError](err)
	statusErr, isStatus := errors.AsType[*controlplane.StatusError](err)
	switch {
	case err == nil:
		s.progress.Denied = false
		if s.progress.Refused == "" {
			s.progress.Err = nil
		}
	case isRefused:
		s.progress.Err = refused
	case isStatus:
		s.progress.Err = &SyncError{Code: "bundle_error", Message: statusErr.Error(), HTTPCode: statusErr.Code}
		s.progress.Denied = statusErr.Code == http.StatusUnauthorized || statusErr.Code == http.StatusForbidden
	default:
		s.progress.Err = &SyncError{Code: "bundle_error", Message: err.Error()}
	}
}

// poll sends one request. changed is true if another bundle became active.
func (s *Syncer) poll(ctx context.Context) (changed bool, err error) {
	s.mu.Lock()
	progress := s.progress
	s.mu.Unlock()
	if !progress.identified {
		if progress, err = s.identifySelf(ctx); err != nil {
			return false, err
		}
	}
	park := s.pollWait()
	ctx, cancel := context.WithTimeout(ctx, park+30*time.Second)
	defer cancel()
	req, err := s.Client.Request(ctx, http.MethodGet, "/bridge/bundles/"+progress.ID, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Prefer", "modes=snapshot;wait="+strconv.Itoa(int(park/time.Second)))
	req.Header.Set("Accept", "application/vnd.openpolicyagent.bundles, application/gzip")
	var tags []string
	if progress.ETag != "" {
		tags = append(tags, progress.ETag)
	}
	if progress.Refused != "" {
		if progress.ETag == "" {
			tags = append(tags, noBundleTag) // the first tag is the active bundle, and there is none
		}
		tags = append(tags, progress.Refused)
	}
	if len(tags) > 0 {
		req.Header.Set("If-None-Match", strings.Join(tags, ", "))
	}
	nonce, err := s.nonce()
	if err != nil {
		return false, err
	}
	if nonce != "" {
		req.Header.Set(HeaderNonce, nonce)
	}
	s.mu.Lock()
	s.progress.Request = s.Now()
	s.mu.Unlock()
	resp, err := s.Client.Do(req)
	if err != nil {
		return false, fmt.Errorf("the control plane cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotModified:
		if err := s.verifyFresh(resp.Header, nonce, progress.ID, progress.ETag, progress.Refused); err != nil {
			return false, err
		}
		s.noteConfirmed()
		return false, nil
	case http.StatusOK:
		data, err := io.ReadAll(io.LimitReader(resp.Body, controlplane.MaxBundle+1))
		if err != nil {
			return false, fmt.Errorf("the bundle is incomplete: %w", err)
		}
		tag := resp.Header.Get("ETag")
		unproven := s.verifyFresh(resp.Header, nonce, progress.ID, tag)
		if changed, err = s.takeBundle(ctx, data, tag, progress.ID, unproven == nil); err == nil {
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
func (s *Syncer) nonce() (string, error) {
	if s.Verify == nil {
		return "", nil
	}
	var raw [16]byte
	if _, err := io.ReadFull(s.Entropy, raw[:]); err != nil {
		return "", fmt.Errorf("a nonce: %w", err)
	}
	return hex.EncodeToString(raw[:]), nil
}

// verifyFresh checks that an answer was made by the control plane for this nonce, and confirms one
// of the tags. So nobody can replay "not modified" for ever. An answer without proof confirms
// nothing, and the status report says so.
func (s *Syncer) verifyFresh(h http.Header, nonce, id string, tags ...string) error {
	if s.Verify == nil {
		return nil
	}
	unproven := func(message string) error {
		s.Count.BundlesUnproven.Add(1)
		return &SyncError{Code: "bundle_unconfirmed", Message: message}
	}
	fresh, err := s.Verify.CheckFresh(h.Get(HeaderFresh), nonce)
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
func (s *Syncer) noteConfirmed() {
	now := s.Now()
	s.confirmedAt(now)
	controlplane.ConfirmBundle(s.Dir, now)
}

// pollWait returns how long the control plane may hold a poll. Each answer confirms the bundle, so
// several polls must fit into max_stale.
func (s *Syncer) pollWait() time.Duration {
	if stale := s.State.Load().MaxStale; stale > 0 {
		return max(min(s.Wait, stale/3), time.Second)
	}
	return s.Wait
}

var errForeignCopy = errors.New("the saved bundle belongs to another bouncer")

// identifySelf asks which bouncer this is, once before the first poll. It drops a bundle that
// another bouncer saved in this directory.
func (s *Syncer) identifySelf(ctx context.Context) (Progress, error) {
	id, err := s.whoAmI(ctx)
	if err != nil {
		return Progress{}, err
	}
	s.mu.Lock()
	foreign := s.progress.ID != "" && s.progress.ID != id
	if foreign {
		s.progress.ETag, s.progress.Size = "", 0
	}
	s.progress.identified = true
	s.mu.Unlock()
	if foreign {
		s.Log.Error("the saved bundle is not usable; waiting for the control plane", "error", errForeignCopy)
		s.State.Store(s.initial())
		s.confirmedAt(time.Time{})
	}
	s.relabel(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress, nil
}

// whoAmI asks which bouncer the token belongs to.
func (s *Syncer) whoAmI(ctx context.Context) (string, error) {
	if s.ID != "" {
		return s.ID, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := s.Client.Request(ctx, http.MethodGet, "/bridge/self", nil)
	if err != nil {
		return "", err
	}
	resp, err := s.Client.Do(req)
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
	id := cmp.Or(self.Bouncer, self.ID).String()
	if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return "", errors.New("the control plane does not say which bouncer this is")
	}
	return id, nil
}
