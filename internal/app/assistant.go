package app

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// assistTimeout is how long classification waits for the assistant.
const assistTimeout = 20 * time.Second

// assistant returns the endpoint that classification may use; nil if none is configured. Its calls
// are guarded like every outbound call.
func (p *parts) assistant() (resource.Assistant, error) {
	if p.cfg.AssistURL == "" {
		return nil, nil
	}
	allow, err := p.cfg.targets()
	if err != nil {
		return nil, err
	}
	client := outbound.New(outbound.Config{AllowCIDRs: allow, AllowHTTP: strings.HasPrefix(p.cfg.AssistURL, "http://"), Timeout: assistTimeout})
	p.closers.add("assistant", time.Second, func(context.Context) error { client.Close(); return nil })
	return &resource.Chat{Client: client, URL: p.cfg.AssistURL, Model: p.cfg.AssistModel, Key: p.cfg.AssistKey}, nil
}

// assistOn reports whether the tenant allows classification by the assistant.
func assistOn(ctx context.Context, tx *db.Tx) (bool, error) {
	settings, err := tenant.SettingsIn(ctx, tx)
	on, _ := settings[tenant.AssistSetting].(bool)
	return on, err
}
