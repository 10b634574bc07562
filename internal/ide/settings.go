package ide

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// maxSettings limits the settings of one person or key for an editor, in bytes of JSON.
const maxSettings = 64 << 10

// defaults returns the settings that apply until others are set.
func defaults() map[string]any {
	return map[string]any{
		"validate_on_save": true, "validate_on_change": true, "lint": true, "format_on_save": false,
		"environment": "sandbox", "test_before_deploy": true,
	}
}

// Settings returns the caller's settings for an editor: the defaults, replaced by those that are
// set.
func (s *Service) Settings(ctx context.Context, sc scope.Scope, editor string) (map[string]any, error) {
	out := defaults()
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		kept, err := settings(ctx, tx, actorName(sc), editor)
		maps.Copy(out, kept)
		return err
	})
	return out, err
}

// SetSettings sets the given members; null restores a default.
func (s *Service) SetSettings(ctx context.Context, sc scope.Scope, editor string, change map[string]any) (map[string]any, error) {
	if env, sent := change["environment"]; sent && env != nil && env != "sandbox" {
		return nil, fault.Invalidf("/settings/environment", "editors deploy to sandbox; from there controls are promoted")
	}
	var out map[string]any
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		if err := user.RequireActor(ctx, tx, sc); err != nil {
			return err
		}
		if err := tx.Lock(ctx, "ide:"+actorName(sc)); err != nil {
			return err
		}
		kept, err := settings(ctx, tx, actorName(sc), editor)
		if err != nil {
			return err
		}
		for name, v := range change {
			if v == nil {
				delete(kept, name)
			} else {
				kept[name] = v
			}
		}
		text, err := json.Marshal(kept)
		if err != nil {
			return fault.Wrap(err, "settings")
		}
		if len(text) > maxSettings {
			return fault.Invalidf("/settings", "settings may have at most %d bytes", maxSettings)
		}
		out = defaults()
		maps.Copy(out, kept)
		return putSettings(ctx, tx, actorName(sc), editor, kept, s.Now())
	})
	return out, err
}

// settings returns the stored settings, or an empty map.
func settings(ctx context.Context, tx *db.Tx, actor, editor string) (map[string]any, error) {
	kept, err := selectSettings(ctx, tx, actor, editor)
	if errors.Is(err, db.ErrNoRows) {
		return map[string]any{}, nil
	}
	if kept == nil {
		kept = map[string]any{}
	}
	return kept, err
}

// Integration is one of the entries of GET /ide-integration/status.
type Integration struct {
	Available       bool     `json:"available" doc:"Whether it is available"`
	Version         string   `json:"version" doc:"Version of the service"`
	Features        []string `json:"features" doc:"What it does"`
	SupportedEvents []string `json:"supported_events,omitempty" doc:"For the webhook: the events that it handles"`
}

// Status lists the integrations.
func (s *Service) Status() map[string]Integration {
	return map[string]Integration{
		"editor-a":        {Available: true, Version: s.Version, Features: []string{"validate", "test", "deploy", "get_templates", "settings"}},
		"editor-b":        {Available: true, Version: s.Version, Features: []string{"validate", "get_suggestions", "settings"}},
		"editor-a-server": {Available: true, Version: s.Version, Features: []string{"sync", "get_context"}},
		"websocket":       {Available: true, Version: s.Version, Features: []string{"ping", "validate", "deployment_status"}},
		"lsp":             {Available: true, Version: s.Version, Features: []string{"diagnostics", "completion", "hover", "formatting", "code_action"}},
		"webhook": {
			Available: true, Version: s.Version, Features: []string{"inline_files", "git_fetch", "github", "gitlab", "replay_protection"},
			SupportedEvents: []string{Push, PullRequest, Tag},
		},
	}
}

// keepDeployments is how long deployments are kept. The digests of deliveries, which detect
// replays, are kept twice as long. Old ones are deleted when new ones are stored.
const keepDeployments = 90 * 24 * time.Hour
