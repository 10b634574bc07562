package guides_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// TestNotificationsGuide runs the commands of docs/notifications.md.
func TestNotificationsGuide(t *testing.T) {
	signed := make(chan bool, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		signed <- outbound.SignatureValid([]byte("a-long-random-key"), body, r.Header.Get("X-Service-Signature"))
	}))
	defer receiver.Close()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
	out := run(t, t.TempDir(), "export RECEIVER="+receiver.URL+"\n"+commands(t, "notifications.md", s),
		`"credential_set":true`, `"delivered":true`, `"alert":"test"`, `"status":"sent"`, `"severity_threshold":"error"`, `"enabled":false`,
	)
	wantNone(t, out, `"error":"validation`, "long-random-key")
	if !<-signed {
		t.Error("the message has a wrong signature")
	}
}
