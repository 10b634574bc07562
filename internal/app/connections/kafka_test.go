package connections_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// TestKafkaGetsTheAudit checks that the topic has each entry of both logs, also after a restart of
// the server and an outage of the broker, and that the chains show that none is missing.
func TestKafkaGetsTheAudit(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		at, dir := netip.MustParseAddrPort(freeport.Addr(t)), t.TempDir()
		start := func() *kfake.Cluster {
			c, err := kfake.NewCluster(kfake.Ports(int(at.Port())), kfake.DataDir(dir), kfake.SeedTopics(2, "audit"), kfake.EnableSASL(),
				kfake.Superuser("SCRAM-SHA-512", "gatehouse", "password-of-kafka-31f"))
			errtest.Must(t, err)
			return c
		}
		cluster := start()
		t.Cleanup(func() { cluster.Close() })
		members := body{
			"name": "kafka", "kind": "siem_forwarder", "endpoint": "kafka://" + at.String(), "settings": body{"topic": "audit", "start": "oldest"},
			"credential": body{"username": "gatehouse", "password": "password-of-kafka-31f"},
		}
		path := fmt.Sprintf("/integrations/%d", a.Do(t, "POST", "/integrations", members).Want(201).ID())
		if res := a.Do(t, "POST", path+"/test", nil).Want(200); res.Get("delivered") != true {
			t.Errorf("the test of the integration = %s, want success", res.Body)
		}
		wanted := map[string]bool{}
		decide := func(n int) {
			t.Helper()
			for range n {
				res := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "bob"}, "resource": body{"type": "api", "path": "/payments"}}).Want(200)
				wanted[fmt.Sprint(res.Get("decision_id"))] = true
			}
		}
		decide(20)
		s.Kill()
		s.Start()
		a = s.Login(t, "admin", apptest.Password)
		decide(20)
		cluster.Close()
		decide(20)
		apptest.Eventually(t, time.Minute, func() error {
			if it := a.Do(t, "GET", path, nil).Want(200); it.Get("last_error") == "" {
				return fmt.Errorf("the integration = %s, want the error of the outage", it.Body)
			}
			return nil
		})
		cluster = start()
		a.Do(t, "PUT", path, body{"name": "kafka again"}).Want(200) // tried at once

		reader, err := kgo.NewClient(kgo.SeedBrokers(at.String()), kgo.ConsumeTopics("audit"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.SASL(scram.Auth{User: "gatehouse", Pass: "password-of-kafka-31f"}.AsSha512Mechanism()))
		errtest.Must(t, err)
		defer reader.Close()
		wait, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		last := map[string]float64{}
		hashes := map[string]string{}
		for len(wanted) > 0 {
			fetched := reader.PollFetches(wait)
			if err := fetched.Err(); err != nil {
				t.Fatalf("reading the topic: %v, with %d decisions missing", err, len(wanted))
			}
			fetched.EachRecord(func(r *kgo.Record) {
				var l struct {
					Chain, Hash string
					Previous    string `json:"previous_hash"`
					Position    float64
					Decision    struct {
						ID string `json:"decision_id"`
					}
				}
				errtest.Must(t, json.Unmarshal(r.Value, &l))
				delete(wanted, l.Decision.ID)
				if l.Chain == "test" || l.Position <= last[l.Chain] { // a test, or it came again
					return
				}
				if l.Position != last[l.Chain]+1 || last[l.Chain] > 0 && l.Previous != hashes[l.Chain] {
					t.Errorf("the chain %s has the position %v after %v, want the next with the hash before", l.Chain, l.Position, last[l.Chain])
				}
				last[l.Chain], hashes[l.Chain] = l.Position, l.Hash
			})
		}
		a.Do(t, "PUT", path, body{"credential": body{"username": "gatehouse", "password": "wrong"}}).Want(200)
		if res := a.Do(t, "POST", path+"/test", nil).Want(200); res.Get("delivered") != false || !strings.Contains(fmt.Sprint(res.Get("error")), "credential") {
			t.Errorf("the test with a wrong password = %s, want a failure of the credential", res.Body)
		}
		if strings.Contains(s.Log.String(), "password-of-kafka") {
			t.Error("the log has a credential")
		}
	})
}
