// Package follow keeps a bouncer's bundle up to date: it polls the control plane, checks
// what comes, makes it the active one, and keeps the last good one on disk.
package follow

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

	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/uplink"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Config is what a follower works with.
type Config struct {
	// ID is the bouncer's id; empty: the control plane is asked whose the token is.
	ID string
	// Token is the bouncer's credential. Saved credentials are sealed under it.
	Token string
	// Dir is where the last good bundle is kept.
	Dir string
	// Version is our version, for labels.
	Version string
	// InitialMode is what happens before there ever was a bundle.
	InitialMode settings.Mode
	// Verify is the key that bundles must be signed with; nil: signatures are not checked.
	Verify *bundle.Verify
	// Wait is how long the control plane may park a poll.
	Wait time.Duration
	// Reader makes settings of a bundle's configuration.
	Reader settings.Reader
	// State takes what is active.
	State *atomic.Pointer[settings.State]
	// Activated is called when a bundle became active, Changed when there is something
	// new to report, Panicked when reading a bundle panicked.
	Activated, Changed func()
	Panicked           func(what string, p any)

	Client  *uplink.Client
	IDs     *ids.Source
	Count   *metrics.Counters
	Log     *slog.Logger
	Now     func() time.Time
	Entropy io.Reader
}

// Follower is the bundle client. Make it with New; only Run and Restore change it.
type Follower struct {
	Config
	labels  atomic.Pointer[[]byte]
	contact atomic.Pointer[time.Time]
	polling atomic.Bool

	mu   sync.Mutex
	sync Progress
}

// New makes a follower, with the state of a bouncer that has no bundle.
func New(c Config) *Follower {
	f := &Follower{Config: c}
	f.State.Store(f.initial())
	f.confirmedAt(time.Time{})
	f.relabel("")
	return f
}

// initial is the state before there is a bundle.
func (f *Follower) initial() *settings.State {
	return &settings.State{Settings: settings.Initial(f.InitialMode, f.Reader.Trusted)}
}

// Progress is what is known now.
func (f *Follower) Progress() Progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sync
}

// Polling reports whether a poll is under way.
func (f *Follower) Polling() bool { return f.polling.Load() }

// LabelMap says who reports, as OPA's labels do.
func (f *Follower) LabelMap() map[string]string {
	return map[string]string{"bouncer": f.Progress().ID, "id": "gatehouse-bouncer", "version": f.Version}
}

// Labels is the beginning of an event of the decision log, up to and with the labels.
// It must not be changed.
func (f *Follower) Labels() []byte { return *f.labels.Load() }

// relabel notes our id, and makes the labels that every event begins with.
func (f *Follower) relabel(id string) {
	f.mu.Lock()
	f.sync.ID = id
	f.mu.Unlock()
	data, err := json.Marshal(f.LabelMap())
	if err != nil {
		data = []byte("{}")
	}
	line := append([]byte(`{"labels":`), data...)
	f.labels.Store(&line)
}

func (f *Follower) confirmedAt(t time.Time) { f.contact.Store(&t) }

// LastContact is when the control plane last stood by the bundle.
func (f *Follower) LastContact() time.Time { return *f.contact.Load() }

// SinceContact is how long the control plane has not confirmed the bundle.
func (f *Follower) SinceContact(now time.Time) time.Duration { return now.Sub(f.LastContact()) }

// Ready reports whether decisions can be taken: a bundle is active, and it is not older
// than it may be.
func (f *Follower) Ready(st *settings.State) bool {
	return st.Set != nil && (st.MaxStale == 0 || f.SinceContact(f.Now()) <= st.MaxStale)
}

// Times of the bundle client.
const (
	retryMin = 100 * time.Millisecond
	// retryMax, with its jitter, is below the ten seconds after which a bouncer
	// must have caught up with a control plane that is back.
	retryMax = 6 * time.Second
	// spinGuard is how soon an unchanged answer is too soon: a control plane
	// that does not park polls must not be asked in a tight loop.
	spinGuard = time.Second
)

// noBundleTag is the ETag of no bundle: revisions begin at 1.
const noBundleTag = `"0"`

// Progress is what the bundle client knows.
type Progress struct {
	// ID is ours, in the bundle's address.
	ID string
	// ETag is that of the active bundle, Refused that of one which is not taken again.
	ETag, Refused string
	// Size is of the active bundle, in bytes.
	Size int
	// Request, Download and Active are when a bundle was last asked for, downloaded and
	// made active.
	Request, Download, Active time.Time
	// Err is of the last attempt; nil when all is well.
	Err *SyncError
	// Denied is set while the control plane refuses our credential.
	Denied bool

	met bool // the control plane has said that our token is this bouncer's
}

// SyncError says why a bundle did not become active, as status reports do.
type SyncError struct {
	Code, Message string
	// HTTPCode is of the control plane's answer, 0 where there was none.
	HTTPCode int
	// File and Issues name the places in a control that does not compile.
	File   string
	Issues []lang.Issue
}

// Error implements error.
func (e *SyncError) Error() string { return e.Code + ": " + e.Message }

// Restore makes the saved bundle the active one, so that a bouncer that starts
// while the control plane is away goes on where it stopped.
func (f *Follower) Restore() {
	head, data, contact, err := uplink.LoadBundle(f.Dir)
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
		etag = "" // the token has changed since: the bundle is fetched anew, for its key
	}
	f.mu.Lock()
	f.sync.ETag, f.sync.Size = etag, len(data)
	f.mu.Unlock()
	f.relabel(head.Bouncer)
	f.confirmedAt(contact)
	f.Log.Info("the saved bundle is active", "revision", head.Revision, "confirmed", contact.UTC())
}

// Run keeps the bundle up to date until ctx ends: one long poll after the
// other, with growing pauses while the control plane is away.
func (f *Follower) Run(ctx context.Context) {
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
				wait = retryMin // another bundle than before: the next may be mended already
			}
			if !ids.Pause(ctx, f.IDs.Jitter(max(wait, uplink.RetryAfter(err)))) {
				return
			}
			wait = min(2*wait, retryMax)
		case changed:
			wait = retryMin
			f.Changed()
		default:
			wait = retryMin
			if early := f.Now().Sub(began); early < spinGuard {
				if !ids.Pause(ctx, f.IDs.Jitter(spinGuard)) {
					return
				}
			}
		}
	}
}

// RefusedTag is the ETag of the bundle that was refused last, while that stands.
func (f *Follower) RefusedTag() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sync.Refused
}

// noteOutcome keeps the outcome of a poll for the status report.
func (f *Follower) noteOutcome(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var no *uplink.StatusError
	var refused *SyncError
	switch {
	case err == nil:
		f.sync.Denied = false
		if f.sync.Refused == "" {
			f.sync.Err = nil
		}
	case errors.As(err, &refused):
		f.sync.Err = refused
	case errors.As(err, &no):
		f.sync.Err = &SyncError{Code: "bundle_error", Message: no.Error(), HTTPCode: no.Code}
		f.sync.Denied = no.Code == http.StatusUnauthorized || no.Code == http.StatusForbidden
	default:
		f.sync.Err = &SyncError{Code: "bundle_error", Message: err.Error()}
	}
}

// poll asks once. changed is true when another bundle became active.
func (f *Follower) poll(ctx context.Context) (changed bool, err error) {
	f.mu.Lock()
	s := f.sync
	f.mu.Unlock()
	if !s.met {
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
			tags = append(tags, noBundleTag) // the first tag is what runs, and nothing does
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
	f.sync.Request = f.Now()
	f.mu.Unlock()
	f.polling.Store(true)
	resp, err := f.Client.Do(req)
	f.polling.Store(false)
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
		data, err := io.ReadAll(io.LimitReader(resp.Body, uplink.MaxBundle+1))
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
	return false, uplink.ErrorOf(resp)
}

// The proof that an answer to a poll is fresh: the bouncer sends a nonce, and the
// control plane signs it, with the revision that holds, by the key of the bundles.
const (
	// HeaderNonce is the request header of the nonce.
	HeaderNonce = "X-Gatehouse-Nonce"
	// HeaderFresh is the answer header of the signature.
	HeaderFresh = "X-Gatehouse-Fresh"
)

// nonce is a new one where bundles are held to a key, else empty.
func (f *Follower) nonce() (string, error) {
	if f.Verify == nil {
		return "", nil
	}
	var raw [16]byte
	if _, err := io.ReadFull(f.Entropy, raw[:]); err != nil {
		return "", fmt.Errorf("a nonce: %w", err)
	}
	return hex.EncodeToString(raw[:]), nil
}

// verifyFresh checks that an answer is the control plane's own, of now, and stands by one
// of the tags. Nobody on the way can repeat "not modified" for ever: what is not proven
// confirms nothing, and the status report says so.
func (f *Follower) verifyFresh(h http.Header, nonce, id string, tags ...string) error {
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

// noteConfirmed notes that the control plane stands by the active bundle.
func (f *Follower) noteConfirmed() {
	now := f.Now()
	f.confirmedAt(now)
	uplink.ConfirmBundle(f.Dir, now)
}

// pollWait is how long a poll may be parked. Its answer confirms the bundle, so
// where max_stale counts, it comes several times within that.
func (f *Follower) pollWait() time.Duration {
	if stale := f.State.Load().MaxStale; stale > 0 {
		return max(min(f.Wait, stale/3), time.Second)
	}
	return f.Wait
}

var errForeignCopy = errors.New("the saved bundle belongs to another bouncer")

// identifySelf finds out who we are, once a run, before the first poll. What was saved
// by another bouncer in this directory is dropped: it is not ours to decide on.
func (f *Follower) identifySelf(ctx context.Context) (Progress, error) {
	id, err := f.whoAmI(ctx)
	if err != nil {
		return Progress{}, err
	}
	f.mu.Lock()
	foreign := f.sync.ID != "" && f.sync.ID != id
	if foreign {
		f.sync.ETag, f.sync.Size = "", 0
	}
	f.sync.met = true
	f.mu.Unlock()
	if foreign {
		f.Log.Error("the saved bundle is not usable; waiting for the control plane", "error", errForeignCopy)
		f.State.Store(f.initial())
		f.confirmedAt(time.Time{})
	}
	f.relabel(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sync, nil
}

// whoAmI asks which bouncer our token belongs to.
func (f *Follower) whoAmI(ctx context.Context) (string, error) {
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
		return "", uplink.ErrorOf(resp)
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
