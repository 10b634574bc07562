package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestCredentialStaysWithItsHost checks that another host or port never gets the stored credential,
// however the endpoint is written.
func TestCredentialStaysWithItsHost(t *testing.T) {
	mail := map[string]any{"from": "g@example.com", "to": "ann@example.com"}
	password := map[string]any{"username": "robot", "password": "passw0rd"}
	dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
		ctx, b := context.Background(), newBench(t, cluster)
		for i, c := range []struct {
			kind, from, to string
			credential     any
			kept           bool
		}{
			{format.Email, "127.0.0.1:2525", "127.0.0.2:2525", password, false},
			{format.Email, "127.0.0.1", "127.0.0.2", password, false},
			{format.Email, "127.0.0.1:2525", "127.0.0.1:2526", password, false},
			{format.Email, "127.0.0.1:2525", "smtp://127.0.0.2:2525", password, false},
			{format.Email, "smtp://127.0.0.1:2525", "127.0.0.2:2525", password, false},
			{format.Email, "localhost:2525", "LOCALHOST.localdomain:2525", password, false},
			{format.Email, "127.0.0.1:2525", "smtp://127.0.0.1:2525", password, true},
			{format.Webhook, "http://127.0.0.1:9/a", "http://127.0.0.2:9/a", "s3cret-of-hmac", false},
			{format.Webhook, "https://127.0.0.1:9/a", "http://127.0.0.1:9/a", "s3cret-of-hmac", false},
			{format.Webhook, "http://127.0.0.1:9/a", "http://127.0.0.1:9/b", "s3cret-of-hmac", true},
		} {
			d := Draft{Name: fmt.Sprint(i), Type: c.kind, Endpoint: c.from, Credential: c.credential}
			if c.kind == format.Email {
				d.Settings = mail
			}
			made := b.channel(d)
			_, err := b.Update(ctx, admin, made.ID, Change{Endpoint: &c.to}, 0)
			f, ok := errors.AsType[*fault.Error](err)
			if refused := ok && f.Code == "credential_required"; refused == c.kept || c.kept && err != nil {
				t.Errorf("Update from %s to %s without the credential = %v, want it accepted: %v", c.from, c.to, err, c.kept)
			}
			if _, err := b.Update(ctx, admin, made.ID, Change{Endpoint: &c.to, Credential: c.credential}, 0); err != nil {
				t.Errorf("Update from %s to %s with the credential: %v", c.from, c.to, err)
			}
		}
		// The audit names the host.
		made := b.channel(Draft{Name: "named", Type: format.Email, Endpoint: "127.0.0.1:2525", Settings: mail})
		other := "127.0.0.2:2525"
		errtest.Must(t, errtest.Of(b.Update(ctx, admin, made.ID, Change{Endpoint: &other, Settings: patch.Set(mail)}, 0)))
		err := cluster.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			changes, err := db.One[string](ctx, tx, `SELECT changes FROM audit_events ORDER BY seq DESC LIMIT 1`)
			if !strings.Contains(changes, "smtp://127.0.0.1:2525") || !strings.Contains(changes, "smtp://127.0.0.2:2525") {
				t.Errorf("the audit has %s, want both hosts", changes)
			}
			return err
		})
		errtest.Must(t, err)
	})
}
