package webhook

import (
	"context"
	"encoding/base64"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// Service has the use cases of subscriptions and their deliveries.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	Random io.Reader
	// Box encrypts the secrets.
	Box *secret.Box
	// Target calls the receivers. It refuses addresses that the operator does not allow.
	Target *outbound.Client
}

// changes is the lock held while subscriptions change, so that names stay unique and the limit on
// their number holds.
const changes = "webhooks"

// List returns one page of the subscriptions, sorted by id.
func (s *Service) List(ctx context.Context, sc scope.Scope, skip, limit int64) (Page, error) {
	var page Page
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = countWebhooks(ctx, tx); err != nil {
			return err
		}
		page.Webhooks, err = listWebhooks(ctx, tx, skip, limit)
		return err
	})
	for i := range page.Webhooks {
		page.Webhooks[i] = s.withComputed(page.Webhooks[i])
	}
	return page, err
}

// Get returns one subscription, or NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Webhook, error) {
	w, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Webhook, error) { return load(ctx, tx, id) })
	return s.withComputed(w), err
}

// Create adds a subscription. It gets the events that are emitted from now on.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Issued, error) {
	next := Webhook{
		Name: strings.TrimSpace(d.Name), URL: d.URL, Events: sortTypes(d.Events), Environment: d.Environment,
		Enabled: d.Enabled == nil || *d.Enabled, ChangeNo: 1, CreatedBy: sc.Actor.Name,
	}
	if err := s.check(ctx, next, d.Offences()); err != nil {
		return Issued{}, err
	}
	clear, drawn, err := s.secretOrNew(d.Secret)
	if err != nil {
		return Issued{}, err
	}
	var made Webhook
	err = s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		n, err := countWebhooks(ctx, tx)
		if err := fault.CheckCounted(n, err, maxWebhooks, "a tenant has at most %d webhooks"); err != nil {
			return err
		}
		if err := checkNameFree(ctx, tx, next.Name, 0); err != nil {
			return err
		}
		w := next
		w.CreatedAt = db.Stamp(s.Now())
		w.UpdatedAt = w.CreatedAt
		if made, err = insertWebhook(ctx, tx, w); err != nil {
			return err
		}
		if made.Secret, err = s.seal(sc.Tenant, made.ID, clear); err != nil {
			return err
		}
		err = audit.Append(ctx, tx, sc, s.Now(), made.entry("WEBHOOK_CREATED", map[string]any{
			"target": outbound.Origin(made.URL), "events": made.Events, "enabled": made.Enabled,
		}))
		if err != nil {
			return err
		}
		// Append has taken the lock under which events are emitted, so no event can come in
		// between.
		if made.SinceSeq, err = event.Last(ctx, tx); err != nil {
			return err
		}
		made, err = updateWebhook(ctx, tx, made)
		return err
	})
	return Issued{s.withComputed(made), drawn}, err
}

// Update changes the members that are sent. If ifChange is not 0, it must be the subscription's
// ChangeNo; otherwise Update returns Precondition.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, c Change, ifChange int64) (Webhook, error) {
	old, err := s.Get(ctx, sc, id)
	if err != nil {
		return Webhook{}, err
	}
	if err := s.check(ctx, old.apply(c), c.Offences()); err != nil {
		return Webhook{}, err
	}
	return s.change(ctx, sc, id, ifChange, "WEBHOOK_UPDATED", func(w *Webhook) error {
		before := w.URL
		*w = w.apply(c)
		if c.Secret == nil && !outbound.SameOrigin(before, w.URL) {
			f := fault.Invalidf("/secret", "another host needs the secret again")
			f.Code = "credential_required"
			return f
		}
		if c.Secret == nil {
			return nil
		}
		if err := checkSecret(*c.Secret); err != nil {
			return err
		}
		w.Previous, w.PreviousSecretUntil = nil, nil
		w.Secret, err = s.seal(sc.Tenant, w.ID, []byte(*c.Secret))
		return err
	})
}

// Enable enables or disables a subscription.
func (s *Service) Enable(ctx context.Context, sc scope.Scope, id int64, on bool) (Webhook, error) {
	kind := "WEBHOOK_DISABLED"
	if on {
		kind = "WEBHOOK_ENABLED"
	}
	return s.change(ctx, sc, id, 0, kind, func(w *Webhook) error { w.Enabled = on; return nil })
}

// RotateSecret replaces the secret. Until the overlap ends, deliveries are signed with both
// secrets, unless the old one cannot be decrypted.
func (s *Service) RotateSecret(ctx context.Context, sc scope.Scope, id int64, r Rotation) (Issued, error) {
	clear, drawn, err := s.secretOrNew(r.Secret)
	if err != nil {
		return Issued{}, err
	}
	overlap := defaultOverlap
	if r.Overlap != nil {
		overlap = time.Duration(*r.Overlap) * time.Second
	}
	w, err := s.change(ctx, sc, id, 0, "WEBHOOK_SECRET_ROTATED", func(w *Webhook) error {
		w.Previous, w.PreviousSecretUntil = nil, nil
		_, lost := s.Box.Open(w.Secret, place(sc.Tenant, w.ID))
		if overlap > 0 && lost == nil {
			until := db.Stamp(s.Now().Add(overlap))
			w.Previous, w.PreviousSecretUntil = w.Secret, &until
		}
		var err error
		w.Secret, err = s.seal(sc.Tenant, w.ID, clear)
		return err
	})
	return Issued{w, drawn}, err
}

// Delete removes a subscription with all its deliveries, including waiting ones.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id, ifChange int64) (Webhook, error) {
	var w Webhook
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) (err error) {
		if w, err = loadCurrent(ctx, tx, id, ifChange); err != nil {
			return err
		}
		if err := deleteWebhook(ctx, tx, id); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), w.entry("WEBHOOK_DELETED", map[string]any{"target": outbound.Origin(w.URL)}))
	})
	return w, err
}

// change edits and stores a subscription, and records the change. If the edit changes nothing,
// there is no new version and no audit entry.
func (s *Service) change(ctx context.Context, sc scope.Scope, id, ifChange int64, kind string, edit func(w *Webhook) error) (Webhook, error) {
	var w Webhook
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		old, err := loadCurrent(ctx, tx, id, ifChange)
		if err != nil {
			return err
		}
		next := old
		if err := edit(&next); err != nil {
			return err
		}
		if reflect.DeepEqual(next, old) {
			w = old
			return nil
		}
		if next.Name != old.Name {
			if err := checkNameFree(ctx, tx, next.Name, id); err != nil {
				return err
			}
		}
		next.ChangeNo, next.UpdatedAt = old.ChangeNo+1, db.Stamp(s.Now())
		if err := audit.Append(ctx, tx, sc, s.Now(), next.entry(kind, changesOf(old, next))); err != nil {
			return err
		}
		if next.Enabled != old.Enabled {
			if err := next.mark(ctx, tx); err != nil {
				return err
			}
		}
		if w, err = updateWebhook(ctx, tx, next); err != nil {
			return err
		}
		return tx.Notify(ctx, Topic) // waiting deliveries may be due now
	})
	return s.withComputed(w), err
}

// mark records the event after which a subscription, which was just enabled or disabled, gets
// events or no longer gets them. The emission of an event counts, not the time at which it is
// queued. Call mark after audit.Append, which holds the lock under which events are emitted.
func (w *Webhook) mark(ctx context.Context, tx *db.Tx) error {
	last, err := event.Last(ctx, tx)
	if w.Enabled {
		w.SinceSeq = last
	} else {
		w.UntilSeq = last
	}
	return err
}

// changesOf lists the differences between two subscriptions for the audit. It gives only scheme and
// host of URLs, and only the fact that the secret changed.
func changesOf(old, next Webhook) map[string]any {
	out := patch.Differences{}
	out.Note("name", old.Name, next.Name)
	out.Note("events", old.Events, next.Events)
	out.Note("environment", old.Environment, next.Environment)
	out.Note("enabled", old.Enabled, next.Enabled)
	if old.URL != next.URL {
		out["target"] = map[string]any{"from": outbound.Origin(old.URL), "to": outbound.Origin(next.URL)}
	}
	if string(old.Secret) != string(next.Secret) {
		out["signing_changed"] = true
	}
	return out
}

func (w Webhook) entry(kind string, changes map[string]any) audit.Entry {
	return audit.Entry{Type: kind, Object: "webhook", ObjectID: strconv.FormatInt(w.ID, 10), ObjectName: w.Name, Env: w.Environment, Changes: changes}
}

// check validates what needs no row: the name, the events, and that the URL is allowed.
func (s *Service) check(ctx context.Context, w Webhook, offences []fault.Detail) error {
	if w.Name == "" {
		offences = append(offences, fault.Detail{Pointer: "/name", Message: "a webhook needs a name"})
	}
	if err := fault.CheckValues("the webhook is not valid", offences); err != nil {
		return err
	}
	return s.Target.Check(ctx, "/url", w.URL)
}

// withComputed sets the members that are not stored.
func (s *Service) withComputed(w Webhook) Webhook {
	w.SecretSet = len(w.Secret) > 0
	if w.PreviousSecretUntil != nil && !w.PreviousSecretUntil.After(s.Now()) {
		w.PreviousSecretUntil = nil
	}
	return w
}

// secretOrNew returns the secret that was sent, or generates one. drawn is the generated secret, to be
// shown once; "": none was generated.
func (s *Service) secretOrNew(sent string) (clear []byte, drawn string, err error) {
	if sent != "" {
		return []byte(sent), "", checkSecret(sent)
	}
	key := make([]byte, 32)
	if _, err := io.ReadFull(s.Random, key); err != nil {
		return nil, "", fault.Wrap(err, "generate a secret")
	}
	drawn = secretPrefix + base64.StdEncoding.EncodeToString(key)
	return []byte(drawn), drawn, nil
}

// place returns the associated data that binds an encrypted secret to one subscription of one
// tenant.
func place(tenant scope.TenantID, id int64) string {
	return "webhooks:" + string(tenant) + ":" + strconv.FormatInt(id, 10)
}

func (s *Service) seal(tenant scope.TenantID, id int64, clear []byte) ([]byte, error) {
	sealed, err := s.Box.Seal(clear, place(tenant, id))
	if err != nil {
		return nil, fault.Wrap(err, "seal")
	}
	return sealed, nil
}

// secrets returns the decrypted secrets that sign now, the current one first. A previous one that does
// not open signs nothing, so that it does not stop the deliveries.
func (s *Service) secrets(tenant scope.TenantID, w Webhook) ([][]byte, error) {
	present, err := s.Box.Open(w.Secret, place(tenant, w.ID))
	if err != nil {
		return nil, err
	}
	out := [][]byte{present}
	if len(w.Previous) > 0 && w.PreviousSecretUntil != nil && w.PreviousSecretUntil.After(s.Now()) {
		if previous, err := s.Box.Open(w.Previous, place(tenant, w.ID)); err == nil {
			out = append(out, previous)
		}
	}
	return out, nil
}

func load(ctx context.Context, tx *db.Tx, id int64) (Webhook, error) {
	w, err := getWebhook(ctx, tx, id)
	return db.Found(w, err, true, "webhook")
}

func loadCurrent(ctx context.Context, tx *db.Tx, id, ifChange int64) (Webhook, error) {
	w, err := load(ctx, tx, id)
	return fault.Current(w, err, "webhook", w.ChangeNo, ifChange)
}

func checkNameFree(ctx context.Context, tx *db.Tx, name string, self int64) error {
	other, err := webhookNamed(ctx, tx, name)
	return db.CheckUnique(other, self, err, "a webhook named %q already exists", name)
}
