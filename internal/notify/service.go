package notify

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// Service has the use cases of channels and their deliveries.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	Random io.Reader
	// Box encrypts the credentials.
	Box *secret.Box
	// Target calls the receivers. It refuses addresses that the operator does not allow.
	Target *outbound.Client
	// Outbox composes the messages.
	Outbox Outbox
}

// changes is the lock held while channels change, so that names stay unique and the limit on their
// number holds.
const changes = "notification channels"

// List returns one page of the channels in the scope's environment, or in both, sorted by id.
func (s *Service) List(ctx context.Context, sc scope.Scope, skip, limit int64) (Page, error) {
	var page Page
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = countChannels(ctx, tx, sc.Env); err != nil {
			return err
		}
		page.Channels, err = listChannels(ctx, tx, sc.Env, skip, limit)
		return err
	})
	for i := range page.Channels {
		page.Channels[i] = page.Channels[i].withComputed()
	}
	return page, err
}

// Get returns one channel, or NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Channel, error) {
	c, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Channel, error) { return load(ctx, tx, sc, id) })
	return c.withComputed(), err
}

// Create adds a channel. It gets the messages that are queued from now on.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Channel, error) {
	env, err := sc.CreateIn(d.Environment)
	if err != nil {
		return Channel{}, err
	}
	t, known := format.Find(d.Type)
	if !known {
		return Channel{}, fault.Invalidf("/type", "there is no such type of channel")
	}
	c := Channel{
		Name: strings.TrimSpace(d.Name), Type: d.Type, Endpoint: d.Endpoint, Environment: env, SeverityThreshold: d.SeverityThreshold,
		MaxAttempts: defaultAttempts, Enabled: d.Enabled == nil || *d.Enabled, Settings: d.Settings, ChangeNo: 1, CreatedBy: sc.Actor.Name, Credential: []byte{},
		QuietHours: d.QuietHours.filled(), DigestWindow: d.DigestWindow,
	}
	c.SeverityThreshold = cmp.Or(c.SeverityThreshold, format.Info)
	patch.Assign(&c.MaxAttempts, d.MaxAttempts)
	secrets, offences := t.ReadCredential(d.Credential)
	if c.Settings == nil {
		c.Settings = map[string]any{}
	}
	c.Endpoint, _ = t.Conceal(c.Endpoint, secrets)
	c.Endpoint = cmp.Or(c.Endpoint, t.Endpoint)
	if err := s.check(ctx, t, c, secrets, offences); err != nil {
		return Channel{}, err
	}
	err = s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		n, err := countChannels(ctx, tx, scope.AnyEnv)
		if err := fault.CheckCounted(n, err, maxChannels, "a tenant has at most %d channels"); err != nil {
			return err
		}
		if err := checkNameFree(ctx, tx, c.Name, 0); err != nil {
			return err
		}
		c.CreatedAt = db.Stamp(s.Now())
		c.UpdatedAt = c.CreatedAt
		if c, err = insertChannel(ctx, tx, c); err != nil {
			return err
		}
		if c.Credential, err = s.seal(sc.Tenant, c.ID, secrets); err != nil {
			return err
		}
		if c, err = updateChannel(ctx, tx, c); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), c.entry("NOTIFICATION_CHANNEL_CREATED", map[string]any{
			"type": c.Type, "target": c.target(), "severity_threshold": c.SeverityThreshold, "enabled": c.Enabled,
		}))
	})
	return c.withComputed(), err
}

// Update changes the members that are sent. If ifChange is not 0, it must be the channel's
// ChangeNo; otherwise Update returns Precondition.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, ch Change, ifChange int64) (Channel, error) {
	old, err := s.load(ctx, sc, id)
	if err != nil {
		return Channel{}, err
	}
	t, _ := format.Find(old.Type)
	next, secrets, err := s.apply(sc.Tenant, t, old, ch)
	if err != nil {
		return Channel{}, err
	}
	_, offences := t.ReadCredential(ch.Credential)
	if err := s.check(ctx, t, next, secrets, offences); err != nil {
		return Channel{}, err
	}
	return s.change(ctx, sc, id, ifChange, "NOTIFICATION_CHANNEL_UPDATED", func(c *Channel) error {
		before := *c
		var secrets map[string]string
		if *c, secrets, err = s.apply(sc.Tenant, t, before, ch); err != nil {
			return err
		}
		was, err := s.open(sc.Tenant, before)
		if err == nil && maps.Equal(was, secrets) {
			return nil
		}
		if err != nil && !errors.Is(err, secret.ErrOpen) {
			return err
		}
		c.Credential, err = s.seal(sc.Tenant, c.ID, secrets)
		return err
	})
}

// apply returns a channel with a change applied, and its decrypted credential. It refuses to use a
// stored credential for another host than the one it was given for. A stored credential that cannot be
// decrypted must be replaced by the change.
func (s *Service) apply(tenant scope.TenantID, t format.Type, c Channel, ch Change) (Channel, map[string]string, error) {
	var secrets map[string]string
	if ch.Credential == nil {
		var err error
		if secrets, err = s.open(tenant, c); err != nil {
			return c, nil, secret.AskAgain(err, "/credential")
		}
	}
	old := format.Channel{Endpoint: c.Endpoint, Settings: c.Settings}
	if ch.Name != nil {
		c.Name = strings.TrimSpace(*ch.Name)
	}
	patch.Assign(&c.Endpoint, ch.Endpoint)
	patch.Assign(&c.SeverityThreshold, ch.SeverityThreshold)
	patch.Assign(&c.MaxAttempts, ch.MaxAttempts)
	patch.Assign(&c.Enabled, ch.Enabled)
	ch.Settings.Apply(&c.Settings)
	ch.QuietHours.ApplyPointer(&c.QuietHours)
	c.QuietHours = c.QuietHours.filled()
	patch.Assign(&c.DigestWindow, ch.DigestWindow)
	kept := len(secrets) > 0 && ch.Credential == nil
	if ch.Credential != nil {
		secrets, _ = t.ReadCredential(ch.Credential)
		if secrets[format.WebhookURL] != "" && ch.Endpoint == nil {
			c.Endpoint = ""
		}
	}
	if c.Settings == nil {
		c.Settings = map[string]any{}
	}
	if secrets != nil && (ch.Endpoint != nil || ch.Credential != nil) {
		var moved bool
		c.Endpoint, moved = t.Conceal(c.Endpoint, secrets)
		kept = kept && !moved
	}
	c.Endpoint = cmp.Or(c.Endpoint, t.Endpoint)
	if kept && !old.SameHosts(format.Channel{Endpoint: c.Endpoint, Settings: c.Settings}) {
		f := fault.Invalidf("/credential", "another host needs the credential again")
		f.Code = "credential_required"
		return c, nil, f
	}
	return c, secrets, nil
}

// Enable enables or disables a channel.
func (s *Service) Enable(ctx context.Context, sc scope.Scope, id int64, on bool) (Channel, error) {
	kind := "NOTIFICATION_CHANNEL_DISABLED"
	if on {
		kind = "NOTIFICATION_CHANNEL_ENABLED"
	}
	return s.change(ctx, sc, id, 0, kind, func(c *Channel) error { c.Enabled = on; return nil })
}

// Delete removes a channel with all its deliveries, including waiting ones.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id, ifChange int64) (Channel, error) {
	var c Channel
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) (err error) {
		if c, err = loadCurrent(ctx, tx, sc, id, ifChange); err != nil {
			return err
		}
		if err := deleteChannel(ctx, tx, id); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), c.entry("NOTIFICATION_CHANNEL_DELETED", map[string]any{"type": c.Type, "target": c.target()}))
	})
	return c, err
}

// change edits and stores a channel, and records the change. If the edit changes nothing, there is
// no new version and no audit entry.
func (s *Service) change(ctx context.Context, sc scope.Scope, id, ifChange int64, kind string, edit func(c *Channel) error) (Channel, error) {
	var c Channel
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		old, err := loadCurrent(ctx, tx, sc, id, ifChange)
		if err != nil {
			return err
		}
		next := old
		if err := edit(&next); err != nil {
			return err
		}
		if reflect.DeepEqual(next, old) {
			c = old
			return nil
		}
		if next.Name != old.Name {
			if err := checkNameFree(ctx, tx, next.Name, id); err != nil {
				return err
			}
		}
		next.ChangeNo, next.UpdatedAt = old.ChangeNo+1, db.Stamp(s.Now())
		if c, err = updateChannel(ctx, tx, next); err != nil {
			return err
		}
		if !reflect.DeepEqual(next.QuietHours, old.QuietHours) || next.DigestWindow != old.DigestWindow {
			if err := endHold(ctx, tx, id, db.Stamp(s.Now())); err != nil {
				return err
			}
		}
		if err := tx.Notify(ctx, Topic); err != nil { // waiting deliveries may be due now
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), c.entry(kind, changesOf(old, c)))
	})
	return c.withComputed(), err
}

// changesOf lists the differences between two channels for the audit. It gives only scheme and host
// of endpoints, and only the fact of a change for settings and credentials.
func changesOf(old, next Channel) map[string]any {
	out := patch.Differences{}
	out.Note("name", old.Name, next.Name)
	out.Note("severity_threshold", old.SeverityThreshold, next.SeverityThreshold)
	out.Note("max_attempts", old.MaxAttempts, next.MaxAttempts)
	out.Note("enabled", old.Enabled, next.Enabled)
	out.Note("quiet_hours", old.QuietHours, next.QuietHours)
	out.Note("digest_window_seconds", old.DigestWindow, next.DigestWindow)
	if old.Endpoint != next.Endpoint {
		out["target"] = map[string]any{"from": old.target(), "to": next.target()}
	}
	if !reflect.DeepEqual(old.Settings, next.Settings) {
		out["settings_changed"] = true
	}
	if string(old.Credential) != string(next.Credential) {
		out["sign_in_changed"] = true
	}
	return out
}

// target returns scheme and host of a channel's endpoint, for the audit.
func (c Channel) target() string {
	return outbound.Origin(format.Channel{Endpoint: c.Endpoint}.URL())
}

func (c Channel) entry(kind string, changes map[string]any) audit.Entry {
	return audit.Entry{Type: kind, Object: "notification_channel", ObjectID: strconv.FormatInt(c.ID, 10), ObjectName: c.Name, Env: c.Environment, Changes: changes}
}

// withComputed sets the members that are not stored.
func (c Channel) withComputed() Channel {
	c.CredentialSet = len(c.Credential) > 0
	return c
}

// check validates a channel with decrypted secrets, and that its addresses are allowed.
func (s *Service) check(ctx context.Context, t format.Type, c Channel, secrets map[string]string, offences []fault.Detail) error {
	if c.Name == "" {
		offences = append(offences, fault.Detail{Pointer: "/name", Message: "a channel needs a name"})
	}
	if tooLarge(c.Settings) {
		offences = append(offences, fault.Detail{Pointer: "/settings", Message: "must not be larger than 16 KiB"})
	}
	offences = append(offences, c.QuietHours.offences()...)
	switch {
	case c.DigestWindow < 0 || c.DigestWindow > maxDigestWindow:
		offences = append(offences, fault.Detail{Pointer: "/digest_window_seconds", Message: "must be from 0 to 86400"})
	case c.DigestWindow > 0 && t.Lasting:
		offences = append(offences, fault.Detail{Pointer: "/digest_window_seconds", Message: "cannot be set for this type, which has one incident or ticket for each fault"})
	}
	hook := secrets[format.WebhookURL]
	if hook != "" && !outbound.SameOrigin(hook, c.Endpoint) {
		offences = append(offences, fault.Detail{Pointer: "/endpoint", Message: "must be that of webhook_url, or absent"})
	}
	f := format.Channel{Endpoint: c.Endpoint, Settings: c.Settings, Credential: secrets}
	if c.Endpoint == "" {
		offences = append(offences, fault.Detail{Pointer: "/endpoint", Message: "is required for this type of channel"})
	} else if len(offences) == 0 {
		offences = t.Check(f)
	}
	if err := fault.CheckValues("the channel is not valid", offences); err != nil {
		return err
	}
	if t.Send == nil {
		server, err := f.MailServer()
		if err != nil {
			return fault.Invalidf("/endpoint", "%s", err.Error())
		}
		if err := s.Target.CheckServer(ctx, "/endpoint", server); err != nil {
			return err
		}
	} else if err := s.Target.Check(ctx, "/endpoint", cmp.Or(hook, c.Endpoint)); err != nil {
		return err
	}
	if url, _ := c.Settings["token_url"].(string); url != "" {
		return s.Target.Check(ctx, "/settings/token_url", url)
	}
	return nil
}

// Missing returns the ids for which the environment has no channel.
func Missing(ctx context.Context, tx *db.Tx, env scope.Env, ids []int64) ([]int64, error) {
	there, err := channelsAmong(ctx, tx, env, ids)
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(there, id) }), err
}

// load returns one channel as it is stored.
func (s *Service) load(ctx context.Context, sc scope.Scope, id int64) (Channel, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Channel, error) { return load(ctx, tx, sc, id) })
}

func load(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Channel, error) {
	c, err := getChannel(ctx, tx, id)
	return db.Found(c, err, sc.Sees(c.Environment), "channel")
}

func loadCurrent(ctx context.Context, tx *db.Tx, sc scope.Scope, id, ifChange int64) (Channel, error) {
	c, err := load(ctx, tx, sc, id)
	return fault.Current(c, err, "channel", c.ChangeNo, ifChange)
}

func checkNameFree(ctx context.Context, tx *db.Tx, name string, self int64) error {
	other, err := channelNamed(ctx, tx, name)
	return db.CheckUnique(other, self, err, "a channel named %q already exists", name)
}
