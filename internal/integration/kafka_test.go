package integration

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// topicOf reads a whole topic into a SIEM that checks the chains, and returns the partition of each
// key.
func topicOf(t *testing.T, c *kfake.Cluster, s *siem) map[string]int32 {
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("audit"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	errtest.Must(t, err)
	defer reader.Close()
	ends := int64(0)
	ask := kmsg.NewPtrListOffsetsRequest()
	ask.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "audit"
	for p := range int32(3) {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = p, -1
		topic.Partitions = append(topic.Partitions, part)
	}
	ask.Topics = append(ask.Topics, topic)
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	answer, err := ask.RequestWith(wait, reader)
	errtest.Must(t, err)
	for _, p := range answer.Topics[0].Partitions {
		ends += p.Offset
	}
	partitions := map[string]int32{}
	for seen := int64(0); seen < ends; {
		fetched := reader.PollFetches(wait)
		errtest.Must(t, fetched.Err())
		fetched.EachRecord(func(r *kgo.Record) {
			seen++
			s.mu.Lock()
			s.take(string(r.Value))
			s.bodies = append(s.bodies, string(r.Value))
			last := s.lines[len(s.lines)-1]
			s.mu.Unlock()
			if !s.seen[fmt.Sprint(last.Chain, last.Position)] || !strings.HasPrefix(string(r.Key), last.Tenant+"/") {
				t.Errorf("the record %s has the key %s, want one of its tenant", r.Value, r.Key)
			}
			if p, ok := partitions[string(r.Key)]; ok && p != r.Partition {
				t.Errorf("the key %s is in the partitions %d and %d, want one", r.Key, p, r.Partition)
			}
			partitions[string(r.Key)] = r.Partition
		})
	}
	return partitions
}

// TestKafka checks that both logs arrive complete and in order, although batches are refused,
// acknowledgements are lost, a broker is away, and replicas end and take over.
func TestKafka(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, s := newBench(t, c), newSIEM(t)
		at := netip.MustParseAddrPort(freeport.Addr(t))
		dir := t.TempDir()
		start := func() *kfake.Cluster {
			fake, err := kfake.NewCluster(kfake.Ports(int(at.Port())), kfake.DataDir(dir), kfake.SeedTopics(3, "audit"))
			errtest.Must(t, err)
			return fake
		}
		fake := start()
		t.Cleanup(func() { fake.Close() })
		b.record(20)
		it := b.create(Draft{Name: "kafka", Kind: SIEM, Endpoint: "kafka://" + fake.ListenAddrs()[0], Settings: map[string]any{"start": "oldest", "topic": "audit"}})
		for round, trouble := range []string{"", "refused", "ack lost", "", "away", ""} {
			b.record(5)
			if trouble == "away" {
				fake.Close()
			}
			fake.ControlKey(int16(kmsg.Produce), func(k kmsg.Request) (kmsg.Response, error, bool) {
				if trouble == "refused" {
					fake.KeepControl()
					ask := k.(*kmsg.ProduceRequest)
					answer := ask.ResponseKind().(*kmsg.ProduceResponse)
					for _, t := range ask.Topics {
						got := kmsg.NewProduceResponseTopic()
						got.Topic, got.TopicID = t.Topic, t.TopicID
						for _, p := range t.Partitions {
							part := kmsg.NewProduceResponseTopicPartition()
							part.Partition, part.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
							got.Partitions = append(got.Partitions, part)
						}
						answer.Topics = append(answer.Topics, got)
					}
					return answer, nil, true
				}
				return nil, nil, false
			})
			b.turn(fmt.Sprint("replica ", round%2), it.ID)
			got, err := b.Get(ctx, admin, it.ID)
			if failed := got.Failures > 0; err != nil || failed != (trouble == "refused" || trouble == "away") {
				t.Errorf("%q: the integration is %+v, error %v, want a failure if the broker refuses or is away", trouble, got, err)
			}
			if trouble == "refused" && !strings.Contains(got.LastError, "TOPIC_AUTHORIZATION_FAILED") {
				t.Errorf("the last error is %q, want TOPIC_AUTHORIZATION_FAILED", got.LastError)
			}
			if trouble == "ack lost" { // the records are stored, but the new place is not
				err := b.Stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
					now := b.clock.Now()
					if _, err := job.AcquireLane(ctx, tx, lanes, it.ID, "x", now); err != nil {
						return err
					}
					place := it.Place
					if _, err := saveSuccess(ctx, tx, it.ID, "x", now, place); err != nil {
						return err
					}
					return job.ReleaseLane(ctx, tx, lanes, it.ID, "x")
				})
				errtest.Must(t, err)
			}
			b.clock.Move(longestWait)
			if trouble == "away" { // it restarts with its data
				fake = start()
			}
			trouble = ""
		}
		partitions := topicOf(t, fake, s)
		s.wantComplete(t, b)
		if s.again == 0 || len(partitions) != 3 {
			t.Errorf("the topic has %d lines again and the keys %v, want some and 3 keys", s.again, partitions)
		}
	})
}

// TestKafkaProducerIsKept checks that a replica uses the same producer for the next parcel, and
// closes it when the integration changes or is not used any more.
func TestKafkaProducerIsKept(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "audit", "other"))
		errtest.Must(t, err)
		t.Cleanup(fake.Close)
		ids := 0
		fake.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			ids++
			return nil, nil, false
		})
		it := b.create(Draft{Name: "kafka", Kind: SIEM, Endpoint: "kafka://" + fake.ListenAddrs()[0], Settings: map[string]any{"topic": "audit"}})
		f := &Forwarder{Service: b.Service, Holder: "r", Logger: slog.New(slog.DiscardHandler)}
		defer f.closeProducers()
		turn := func(want int) {
			t.Helper()
			b.record(2)
			b.clock.Move(2 * lookEvery)
			errtest.Must(t, errtest.Of(f.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: it.ID}, func() {})))
			if got, err := b.Get(ctx, admin, it.ID); err != nil || got.Failures > 0 {
				t.Fatalf("the integration is %+v, error %v, want no failure", got, err)
			}
			if len(f.producers.open) != 1 || ids != want {
				t.Errorf("%d producers are open after %d ids, want 1 after %d", len(f.producers.open), ids, want)
			}
		}
		turn(1)
		turn(1)
		b.update(it.ID, map[string]any{"topic": "other"})
		turn(2)
		b.clock.Move(2 * keepProducer)
		if err := b.Stores.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error { _, err := f.list(ctx, tx); return err }); err != nil || len(f.producers.open) != 0 {
			t.Errorf("%d producers are open, %v, want none", len(f.producers.open), err)
		}
	})
}

// update changes the settings of an integration.
func (b *bench) update(id int64, settings map[string]any) Integration {
	b.Helper()
	it, err := b.Update(ctx, admin, id, Change{Settings: patch.Field[map[string]any]{Sent: true, Value: settings}}, 0)
	errtest.Must(b, err)
	return it
}

// TestKafkaIsChecked checks that invalid values are refused with the right pointer and a helpful
// message.
func TestKafkaIsChecked(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	good := map[string]any{"topic": "audit"}
	with := func(name string, v any) map[string]any { return map[string]any{"topic": "audit", name: v} }
	login := map[string]any{"username": "ada", "password": "secret"}
	for _, c := range []struct {
		endpoint   string
		settings   map[string]any
		credential any
		want       string
	}{
		{"kafka+tls://b1.example.com", nil, nil, "/settings/topic"},
		{"kafka+tls://b1.example.com", map[string]any{"topic": "a b"}, nil, "/settings/topic"},
		{"kafka+tls://b1.example.com", with("confirmation", "close"), nil, "/settings/confirmation"},
		{"kafka+tls://b1.example.com", with("sasl_mechanism", "PLAIN"), nil, "/settings/sasl_mechanism"},
		{"kafka+tls://b1.example.com", with("sasl_mechanism", "GSSAPI"), login, "/settings/sasl_mechanism"},
		{"kafka+tls://b1.example.com", with("ca_certificates", "no"), login, "/settings/ca_certificates"},
		{"kafka://b1.example.com", with("ca_certificates", "no"), login, "/settings/ca_certificates"},
		{"kafka+tls://b1.example.com", good, "token", "/credential"},
		{"kafka+tls://b1.example.com", good, map[string]any{"client_certificate": "x", "client_key": "y"}, "/credential/client_certificate"},
		{"kafka+tls://b1.example.com", good, map[string]any{"client_certificate": "x", "client_key": "y", "username": "ada", "password": "secret"}, "/credential/client_certificate"},
		{"syslog+tls://siem.example.com", nil, map[string]any{"client_certificate": "x", "client_key": "y", "username": "ada", "password": "secret"}, "/credential"},
		{"kafka+tls://", good, nil, "/endpoint"},
		{"kafka+tls://b1.example.com:", good, nil, "/endpoint"},
		{"kafka+tls://b1.example.com:99999", good, nil, "/endpoint"},
		{"kafka+tls://ada@b1.example.com", good, nil, "/endpoint"},
		{"kafka+tls://b1.example.com/audit", good, nil, "/endpoint"},
		{"kafka+tls://b1.example.com,", good, nil, "/endpoint"},
		{"kafka+tls://" + strings.Repeat("b.example.com,", 10) + "b.example.com", good, nil, "/endpoint"},
		{"kafka+tls://b1.example.com,10.0.0.8:9093", good, nil, "/endpoint"},
		{"kafka+tls://169.254.169.254:9093", good, nil, "/endpoint"},
		{"kafka://8.8.8.8:9092", good, nil, "/endpoint"}, // a plain connection to an address that is not allowed
		{"https://siem.example.com", good, nil, "/settings/topic"},
		{"https://siem.example.com", nil, login, "/credential"},
		{"syslog+tls://siem.example.com", good, nil, "/settings/topic"},
	} {
		_, err := b.Create(ctx, admin, Draft{Name: "k", Kind: SIEM, Endpoint: c.endpoint, Settings: c.settings, Credential: c.credential})
		if err == nil || !pointsAt(err, c.want) {
			t.Errorf("Create with %s %v %v = %v, want an offence at %s", c.endpoint, c.settings, c.credential, err, c.want)
		}
	}
	it := b.create(Draft{Name: "kafka", Kind: SIEM, Endpoint: "kafka+tls://b1.example.com,b2.example.com:9094", Settings: with("sasl_mechanism", "SCRAM-SHA-256"), Credential: login})
	if _, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new("kafka+tls://b2.example.com:9094,b1.example.com")}, 0); err != nil {
		t.Errorf("Update to the same brokers: %v", err)
	}
	if _, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new("kafka+tls://b1.example.com,b3.example.com")}, 0); err == nil || !pointsAt(err, "/credential") {
		t.Errorf("Update to another broker = %v, want an offence at /credential", err)
	}
}

// TestRecordsAreBounded checks that an entry that no broker would accept is shortened, and keeps
// its position in its chain.
func TestRecordsAreBounded(t *testing.T) {
	large := `{"decision_id":"d-1","trace":"` + strings.Repeat("x", 2<<20) + `"}`
	line := tail.Line{Chain: "decisions.full", Position: 7, Hash: "h", PreviousHash: "g", Tenant: "acme", Decision: json.RawMessage(large)}
	for _, kind := range []string{formatJSON, formatCEF, formatSyslog} {
		it := Integration{Kind: SIEM, Endpoint: "kafka+tls://b.example.com", Settings: map[string]any{"format": kind}}
		rs, err := records(it, []tail.Line{line})
		if err != nil || len(rs) != 1 || string(rs[0].Key) != "acme/decisions.full" || len(rs[0].Value) > maxRecord {
			t.Errorf("%s: records = %+v, error %v, want one of at most %d bytes", kind, rs, err, maxRecord)
		}
		if kind != formatJSON {
			continue
		}
		var got shortened
		if err := json.Unmarshal(rs[0].Value, &got); err != nil || got.Position != 7 || got.PreviousHash != "g" || len(got.Shortened) != 1 || got.Shortened[0] != "decision.trace" {
			t.Errorf("the record at %d has %v shortened, error %v, want the trace at 7", got.Position, got.Shortened, err)
		}
	}
}

// TestKafkaTopicIsSmall checks that a topic with small batches gets all entries, and that an entry
// that is too long for it is shortened and does not stop the forwarder.
func TestKafkaTopicIsSmall(t *testing.T) {
	b, s := newBench(t, dbtest.Open(t, dbtest.SQLite)), newSIEM(t)
	fake, err := kfake.NewCluster(kfake.SeedTopics(3, "audit"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "3000"}))
	errtest.Must(t, err)
	t.Cleanup(fake.Close)
	noise := make([]byte, 20_000)
	_, _ = rand.Read(noise)
	b.record(10)
	err = b.Stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		return audit.Append(ctx, tx, admin, b.clock.Now(), audit.Entry{Type: "TRIED", Object: "thing", ObjectID: "long", Changes: map[string]any{"text": hex.EncodeToString(noise)}})
	})
	errtest.Must(t, err)
	b.record(10)
	it := b.create(Draft{Name: "kafka", Kind: SIEM, Endpoint: "kafka://" + fake.ListenAddrs()[0], Settings: map[string]any{"start": "oldest", "topic": "audit"}})
	b.turn("r", it.ID)
	if got, err := b.Get(ctx, admin, it.ID); err != nil || got.Failures > 0 {
		t.Fatalf("the last error is %q, error %v, want no failure", got.LastError, err)
	}
	topicOf(t, fake, s)
	s.wantComplete(t, b)
	if all := strings.Join(s.bodies, ""); !strings.Contains(all, `"shortened":["event.`) {
		t.Error("no entry is shortened, want the long one")
	}
}
