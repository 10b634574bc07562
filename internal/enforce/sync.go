package enforce

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/uplink"
	"github.com/gatehouse-dev/gatehouse/internal/fault"

	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Times of the bundle client.
const (
	retryMin = 100 * time.Millisecond
	// retryMax, with its jitter, is below the ten seconds after which a bouncer
	// must have caught up with a control plane that is back.
	retryMax = 6 * time.Second
	// spinGuard is how soon an unchanged answer is too soon: a control plane
	// that does not park polls must not be asked in a tight loop.
	spinGuard = time.Second
	// tunnelCheck is how often open sockets are decided on anew.
	tunnelCheck = 15 * time.Second
)

// noBundleTag is the ETag of no bundle: revisions begin at 1.
const noBundleTag = `"0"`

// syncState is what the bundle client knows; only its goroutine changes it,
// under mu, for the status reporter reads it.
type syncState struct {
	id       string // ours, in the bundle's address
	met      bool   // the control plane has said that our token is this bouncer's
	etag     string // of the bundle that is active
	refused  string // ETag that was refused: it is not taken again
	size     int
	request  time.Time
	download time.Time
	active   time.Time
	err      *syncError // of the last attempt; nil when all is well
	denied   bool       // the credential is not taken any more
}

// syncError is what the status report says of a bundle that did not become active.
type syncError struct {
	code, message string
	httpCode      int
	file          string
	issues        []lang.Issue
}

// Error implements error.
func (e *syncError) Error() string { return e.code + ": " + e.message }

// restore makes the saved bundle the active one, so that a bouncer that starts
// while the control plane is away goes on where it stopped.
func (b *Bouncer) restore() {
	head, data, contact, err := uplink.LoadBundle(b.cfg.DataDir)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil && b.cfg.ID != "" && head.Bouncer != b.cfg.ID {
		err = errForeignCopy
	}
	if err == nil {
		err = b.activate(data, head.Bouncer, true, b.savedCredentials)
	}
	if err != nil {
		b.log.Error("the saved bundle is not usable; waiting for the control plane", "error", err)
		return
	}
	etag := head.ETag
	if b.state.Load().KeyClosed {
		etag = "" // the token has changed since: the bundle is fetched anew, for its key
	}
	b.mu.Lock()
	b.sync.etag, b.sync.size = etag, len(data)
	b.mu.Unlock()
	b.relabel(head.Bouncer)
	b.confirmedAt(contact)
	b.log.Info("the saved bundle is active", "revision", head.Revision, "confirmed", contact.UTC())
}

// follow keeps the bundle up to date until ctx ends: one long poll after the
// other, with growing pauses while the control plane is away.
func (b *Bouncer) follow(ctx context.Context) {
	wait := retryMin
	for ctx.Err() == nil {
		began, refused := b.cfg.Now(), b.refusedTag()
		changed, err := b.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		b.noteOutcome(err)
		switch {
		case err != nil:
			b.log.Warn("the bundle could not be updated", "error", err)
			b.report.wakeUp()
			if b.refusedTag() != refused {
				wait = retryMin // another bundle than before: the next may be mended already
			}
			if !ids.Pause(ctx, b.ids.Jitter(max(wait, uplink.RetryAfter(err)))) {
				return
			}
			wait = min(2*wait, retryMax)
		case changed:
			wait = retryMin
			b.report.wakeUp()
		default:
			wait = retryMin
			if early := b.cfg.Now().Sub(began); early < spinGuard {
				if !ids.Pause(ctx, b.ids.Jitter(spinGuard)) {
					return
				}
			}
		}
	}
}

// refusedTag is the ETag of the bundle that was refused last, while that stands.
func (b *Bouncer) refusedTag() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sync.refused
}

// noteOutcome keeps the outcome of a poll for the status report.
func (b *Bouncer) noteOutcome(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var no *uplink.StatusError
	var refused *syncError
	switch {
	case err == nil:
		b.sync.denied = false
		if b.sync.refused == "" {
			b.sync.err = nil
		}
	case errors.As(err, &refused):
		b.sync.err = refused
	case errors.As(err, &no):
		b.sync.err = &syncError{code: "bundle_error", message: no.Error(), httpCode: no.Code}
		b.sync.denied = no.Code == http.StatusUnauthorized || no.Code == http.StatusForbidden
	default:
		b.sync.err = &syncError{code: "bundle_error", message: err.Error()}
	}
}

// poll asks once. changed is true when another bundle became active.
func (b *Bouncer) poll(ctx context.Context) (changed bool, err error) {
	b.mu.Lock()
	s := b.sync
	b.mu.Unlock()
	if !s.met {
		if s, err = b.identifySelf(ctx); err != nil {
			return false, err
		}
	}
	park := b.pollWait()
	ctx, cancel := context.WithTimeout(ctx, park+30*time.Second)
	defer cancel()
	req, err := b.client.Request(ctx, http.MethodGet, "/bridge/bundles/"+s.id, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Prefer", "modes=snapshot;wait="+strconv.Itoa(int(park/time.Second)))
	req.Header.Set("Accept", "application/vnd.openpolicyagent.bundles, application/gzip")
	var tags []string
	if s.etag != "" {
		tags = append(tags, s.etag)
	}
	if s.refused != "" {
		if s.etag == "" {
			tags = append(tags, noBundleTag) // the first tag is what runs, and nothing does
		}
		tags = append(tags, s.refused)
	}
	if len(tags) > 0 {
		req.Header.Set("If-None-Match", strings.Join(tags, ", "))
	}
	nonce, err := b.nonce()
	if err != nil {
		return false, err
	}
	if nonce != "" {
		req.Header.Set(headerNonce, nonce)
	}
	b.mu.Lock()
	b.sync.request = b.cfg.Now()
	b.mu.Unlock()
	b.polling.Store(true)
	resp, err := b.client.Do(req)
	b.polling.Store(false)
	if err != nil {
		return false, fmt.Errorf("the control plane cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotModified:
		if err := b.verifyFresh(resp.Header, nonce, s.id, s.etag, s.refused); err != nil {
			return false, err
		}
		b.noteConfirmed()
		return false, nil
	case http.StatusOK:
		data, err := io.ReadAll(io.LimitReader(resp.Body, uplink.MaxBundle+1))
		if err != nil {
			return false, fmt.Errorf("the bundle is incomplete: %w", err)
		}
		tag := resp.Header.Get("ETag")
		unproven := b.verifyFresh(resp.Header, nonce, s.id, tag)
		if changed, err = b.takeBundle(ctx, data, tag, s.id, unproven == nil); err == nil {
			err = unproven
		}
		return changed, err
	}
	return false, uplink.ErrorOf(resp)
}

// The proof that an answer to a poll is fresh: the bouncer sends a nonce, and the
// control plane signs it, with the revision that holds, by the key of the bundles.
const (
	headerNonce = "X-Gatehouse-Nonce"
	headerFresh = "X-Gatehouse-Fresh"
)

// nonce is a new one where bundles are held to a key, else empty.
func (b *Bouncer) nonce() (string, error) {
	if b.cfg.Verify == nil {
		return "", nil
	}
	var raw [16]byte
	if _, err := io.ReadFull(b.cfg.Entropy, raw[:]); err != nil {
		return "", fmt.Errorf("a nonce: %w", err)
	}
	return hex.EncodeToString(raw[:]), nil
}

// verifyFresh checks that an answer is the control plane's own, of now, and stands by one
// of the tags. Nobody on the way can repeat "not modified" for ever: what is not proven
// confirms nothing, and the status report says so.
func (b *Bouncer) verifyFresh(h http.Header, nonce, id string, tags ...string) error {
	if b.cfg.Verify == nil {
		return nil
	}
	unproven := func(message string) error {
		b.count.BundlesUnproven.Add(1)
		return &syncError{code: "bundle_unconfirmed", message: message}
	}
	f, err := b.cfg.Verify.CheckFresh(h.Get(headerFresh), nonce)
	switch {
	case err != nil:
		return unproven(err.Error())
	case strconv.FormatInt(f.Bouncer, 10) != id:
		return unproven("the proof that the answer is fresh belongs to another bouncer")
	case f.Revision == "" || !slices.Contains(tags, f.Revision):
		return unproven("the control plane confirms revision " + f.Revision + ", which did not arrive")
	}
	return nil
}

// noteConfirmed notes that the control plane stands by the active bundle.
func (b *Bouncer) noteConfirmed() {
	now := b.cfg.Now()
	b.confirmedAt(now)
	uplink.ConfirmBundle(b.cfg.DataDir, now)
}

// pollWait is how long a poll may be parked. Its answer confirms the bundle, so
// where max_stale counts, it comes several times within that.
func (b *Bouncer) pollWait() time.Duration {
	if stale := b.state.Load().MaxStale; stale > 0 {
		return max(min(b.cfg.PollWait, stale/3), time.Second)
	}
	return b.cfg.PollWait
}

var errForeignCopy = errors.New("the saved bundle belongs to another bouncer")

// identifySelf finds out who we are, once a run, before the first poll. What was saved
// by another bouncer in this directory is dropped: it is not ours to decide on.
func (b *Bouncer) identifySelf(ctx context.Context) (syncState, error) {
	id, err := b.whoAmI(ctx)
	if err != nil {
		return syncState{}, err
	}
	b.mu.Lock()
	foreign := b.sync.id != "" && b.sync.id != id
	if foreign {
		b.sync.etag, b.sync.size = "", 0
	}
	b.sync.met = true
	b.mu.Unlock()
	if foreign {
		b.log.Error("the saved bundle is not usable; waiting for the control plane", "error", errForeignCopy)
		b.state.Store(b.initialState())
		b.confirmedAt(time.Time{})
	}
	b.relabel(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sync, nil
}

// whoAmI asks which bouncer our token belongs to.
func (b *Bouncer) whoAmI(ctx context.Context) (string, error) {
	if b.cfg.ID != "" {
		return b.cfg.ID, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := b.client.Request(ctx, http.MethodGet, "/bridge/self", nil)
	if err != nil {
		return "", err
	}
	resp, err := b.client.Do(req)
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

// takeBundle takes a bundle that was downloaded, or says why not. One that is
// refused leaves the last good one in place.
// fresh: the control plane stands by it now.
func (b *Bouncer) takeBundle(ctx context.Context, data []byte, etag, id string, fresh bool) (bool, error) {
	now := b.cfg.Now()
	b.mu.Lock()
	b.sync.download = now
	b.mu.Unlock()
	err := error(nil)
	if len(data) > uplink.MaxBundle {
		err = &syncError{code: "bundle_too_large", message: "the bundle is over 64 MiB"}
	} else {
		err = b.activate(data, id, false, func(id string, least int64) (*settings.Credentials, error) { return b.fetchCredentials(ctx, id, least) })
	}
	if errors.Is(err, settings.ErrNoCredentials) {
		return false, err // the bundle is good: it is asked for again
	}
	if err != nil {
		b.count.BundlesRefused.Add(1)
		b.mu.Lock()
		b.sync.refused = etag
		b.mu.Unlock()
		return false, err
	}
	b.count.BundlesActivated.Add(1)
	st := b.state.Load()
	b.mu.Lock()
	b.sync.etag, b.sync.refused, b.sync.size, b.sync.active, b.sync.err = etag, "", len(data), now, nil
	b.mu.Unlock()
	if fresh {
		b.confirmedAt(now)
	}
	if err := uplink.SaveBundle(b.cfg.DataDir, uplink.SavedHead{Bouncer: id, Revision: st.Revision, ETag: etag}, data); err != nil {
		b.count.SaveFailures.Add(1)
		b.log.Error("the bundle is active but could not be saved for a restart", "error", err)
	}
	if st.Signed && b.cfg.Verify == nil {
		b.log.Warn("bundles are signed but not verified: set GATEHOUSE_BOUNCER_VERIFY_KEY to the key that the registration of the bouncer returned")
	}
	b.log.Info("a bundle is active", "revision", st.Revision, "mode", st.Mode.String(), "controls", st.Controls)
	return true, nil
}

// activate reads a bundle and swaps it in, all or nothing. obtain gives the
// credentials that it goes with. stored: it is the one that was active before a restart.
func (b *Bouncer) activate(data []byte, id string, stored bool, obtain func(id string, least int64) (*settings.Credentials, error)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			b.panicked(context.Background(), "reading a bundle panicked", p, "")
			err = &syncError{code: "bundle_error", message: "reading the bundle panicked: " + fault.DescribePanic(p)}
		}
	}()
	before := b.state.Load()
	bundle, err := bundle.Reader{Verify: b.cfg.Verify, Active: before.Set, Stored: stored}.Read(data)
	if err != nil {
		return refusedBundle(err)
	}
	if older(bundle.Revision, before.Revision) {
		return &syncError{code: "bundle_rollback", message: fmt.Sprintf("revision %s is older than %s, which is active", bundle.Revision, before.Revision)}
	}
	s, err := b.reader.Read(bundle, before.Settings)
	if err != nil {
		return &syncError{code: "bundle_configuration", message: err.Error()}
	}
	if s.Bouncer != "" && id != "" && s.Bouncer != id {
		return &syncError{code: "bundle_foreign", message: "the bundle is another bouncer's"}
	}
	if s.Environment == "" {
		s.Environment = bundle.Env
	}
	var creds *settings.Credentials
	if s.CredentialsNo > 0 {
		if creds, err = obtain(s.Bouncer, s.CredentialsNo); err != nil {
			return err
		}
	}
	b.state.Store(&settings.State{Settings: s, Credentials: creds, Set: bundle.Set, Revision: bundle.Revision, Activated: b.cfg.Now(), Controls: len(bundle.Set.Controls())})
	select {
	case b.activated <- struct{}{}:
	default:
	}
	b.announce()
	return nil
}

// refusedBundle keeps the place in the control that a bundle was refused for.
func refusedBundle(err error) error {
	e := &syncError{code: "bundle_error", message: err.Error()}
	var no *bundle.RefusedError
	if errors.As(err, &no) {
		e.code, e.issues = "rego_compile_error", no.Issues
		e.file = "gatehouse/controls/c" + strconv.FormatInt(no.Control, 10) + ".rego"
	}
	return e
}

// older compares revisions that end in a number; others have no order.
func older(next, now string) bool {
	a, ok1 := revisionNumber(next)
	b, ok2 := revisionNumber(now)
	return ok1 && ok2 && a < b
}

func revisionNumber(rev string) (int64, bool) {
	i := len(rev)
	for i > 0 && rev[i-1] >= '0' && rev[i-1] <= '9' {
		i--
	}
	n, err := strconv.ParseInt(rev[i:], 10, 64)
	return n, err == nil
}
