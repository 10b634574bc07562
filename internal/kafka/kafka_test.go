package kafka

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
)

const topic = "audit"

func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, topic)}, opts...)...)
	errtest.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

func brokers(t *testing.T, c *kfake.Cluster) (out []Broker) {
	t.Helper()
	for _, address := range c.ListenAddrs() {
		ap, err := netip.ParseAddrPort(address)
		errtest.Must(t, err)
		out = append(out, Broker{ap.Addr().String(), ap.Port()})
	}
	return out
}

func producer(t *testing.T, via *outbound.Client, c Cluster) *Producer {
	t.Helper()
	c.Topic = topic
	p, err := Open(via, c)
	errtest.Must(t, err)
	t.Cleanup(p.Close)
	return p
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func batch(key string, n int) (out []Record) {
	for i := range n {
		out = append(out, Record{Key: []byte(key), Value: []byte(strconv.Itoa(i))})
	}
	return out
}

// TestOrder checks that the records of each key are in one partition, in order and acknowledged,
// over several sends of one producer.
func TestOrder(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	p := producer(t, outboundtest.Local(t), Cluster{Brokers: brokers(t, c), Plain: true})
	for i := range 200 {
		var rs []Record
		for _, key := range []string{"a", "b", "c", "d"} {
			rs = append(rs, Record{Key: []byte(key), Value: fmt.Append(nil, i)})
		}
		errtest.Must(t, p.Send(within(t), rs))
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	errtest.Must(t, err)
	defer reader.Close()
	next, at := map[string]int{}, map[string]int32{}
	for seen := 0; seen < 800; {
		fetched := reader.PollFetches(within(t))
		errtest.Must(t, fetched.Err())
		fetched.EachRecord(func(r *kgo.Record) {
			seen++
			key := string(r.Key)
			if string(r.Value) != strconv.Itoa(next[key]) {
				t.Errorf("record of %s = %s, want %d", key, r.Value, next[key])
			}
			if p, ok := at[key]; ok && p != r.Partition {
				t.Errorf("the key %s is in two partitions", key)
			}
			next[key]++
			at[key] = r.Partition
		})
	}
}

// TestSignIn tests each mechanism over TLS, and the errors of a wrong credential.
func TestSignIn(t *testing.T) {
	t.Parallel()
	secured := httptest.NewTLSServer(nil)
	t.Cleanup(secured.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secured.Certificate())
	c := cluster(t, kfake.TLS(secured.TLS.Clone()), kfake.EnableSASL(),
		kfake.Superuser(Plain, "ada", "secret"), kfake.Superuser(ScramSHA256, "bob", "secret"), kfake.Superuser(ScramSHA512, "eve", "secret"))
	via := outboundtest.Local(t)
	good := Cluster{Brokers: brokers(t, c), RootCAs: roots}
	for mechanism, user := range map[string]string{Plain: "ada", ScramSHA256: "bob", ScramSHA512: "eve"} {
		with := good
		with.Mechanism, with.User, with.Password = mechanism, user, "secret"
		if err := producer(t, via, with).Send(within(t), batch("k", 3)); err != nil {
			t.Errorf("Send with %s: %v", mechanism, err)
		}
		with.Password = "wrong"
		if err := producer(t, via, with).Send(within(t), batch("k", 3)); err == nil || !strings.Contains(Reason(err), "may not accept the credential") {
			t.Errorf("Send with %s and a wrong password = %v (%s), want the credential refused", mechanism, err, Reason(err))
		}
	}
	// kfake closes the connection, like some proxies. A real broker answers first.
	refusing := cluster(t, kfake.EnableSASL(), kfake.Superuser(Plain, "ada", "secret"))
	refusing.ControlKey(int16(kmsg.SASLAuthenticate), func(k kmsg.Request) (kmsg.Response, error, bool) {
		refusing.KeepControl()
		answer := k.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return answer, nil, true
	})
	if err := producer(t, via, Cluster{Brokers: brokers(t, refusing), Plain: true, Mechanism: Plain, User: "ada", Password: "wrong"}).Send(within(t), batch("k", 1)); err == nil || !strings.Contains(Reason(err), "does not accept the credential") {
		t.Errorf("Send with a refused sign-in = %v (%s), want the credential refused", err, Reason(err))
	}
	signedIn := good
	signedIn.Mechanism, signedIn.User, signedIn.Password = Plain, "ada", "secret"
	stranger := signedIn
	stranger.RootCAs = nil
	if err := producer(t, via, stranger).Send(within(t), batch("k", 1)); err == nil || Reason(err) != "the target could not be reached" {
		t.Errorf("Send to a broker with an unknown certificate = %v (%s), want unreachable", err, Reason(err))
	}
	lost, err := Open(via, Cluster{Brokers: signedIn.Brokers, RootCAs: roots, Mechanism: Plain, User: "ada", Password: "secret", Topic: "nowhere"})
	errtest.Must(t, err)
	t.Cleanup(lost.Close)
	if err := lost.Send(within(t), batch("k", 1)); err == nil || !strings.Contains(Reason(err), "no such topic") {
		t.Errorf("Send to an unknown topic = %v (%s), want no such topic", err, Reason(err))
	}
}

// TestGuard checks that neither the brokers of the endpoint nor those that a cluster names can lead
// into a network that is not allowed, and that plain connections go only to allowed addresses.
func TestGuard(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	direct := Cluster{Brokers: brokers(t, c), Plain: true}
	if err := producer(t, outboundtest.New(t, outbound.Config{}), direct).Send(within(t), batch("k", 1)); err == nil || Reason(err) != "the target could not be reached" {
		t.Errorf("Send to a loopback address = %v, want unreachable", err)
	}

	// The cluster names a broker at another address, in an inner network.
	inner, err := net.Listen("tcp", "127.0.0.9:0")
	errtest.Must(t, err)
	t.Cleanup(func() { _ = inner.Close() })
	reached := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := inner.Accept()
			if err != nil {
				return
			}
			reached <- struct{}{}
			_ = conn.Close()
		}
	}()
	at := netip.MustParseAddrPort(inner.Addr().String())
	c.ControlKey(int16(kmsg.Metadata), func(k kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		ask := k.(*kmsg.MetadataRequest)
		answer := ask.ResponseKind().(*kmsg.MetadataResponse)
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = 0, at.Addr().String(), int32(at.Port())
		answer.Brokers = append(answer.Brokers, b)
		for _, wanted := range ask.Topics {
			found := kmsg.NewMetadataResponseTopic()
			found.Topic, found.TopicID = wanted.Topic, wanted.TopicID
			part := kmsg.NewMetadataResponseTopicPartition()
			part.Replicas, part.ISR = []int32{0}, []int32{0}
			found.Partitions = append(found.Partitions, part)
			answer.Topics = append(answer.Topics, found)
		}
		return answer, nil, true
	})
	short, stop := context.WithTimeout(within(t), 2*time.Second)
	defer stop()
	if err := producer(t, outboundtest.New(t, outbound.Config{}, "127.0.0.1/32"), direct).Send(short, batch("k", 1)); err == nil {
		t.Error("Send to a broker that is not allowed succeeds, want an error")
	}
	if len(reached) > 0 {
		t.Error("a connection reached a broker that is not allowed")
	}
	// A client that is allowed to reaches the same broker, so it was the guard that refused it
	// above.
	trying, cancel := context.WithCancel(within(t))
	sent := make(chan error, 1)
	allowed := producer(t, outboundtest.Local(t), direct)
	go func() { sent <- allowed.Send(trying, batch("k", 1)) }()
	select {
	case <-reached:
	case err := <-sent:
		t.Errorf("Send ends without a connection: %v", err)
	}
	cancel()
}

// TestSmallTopic checks that records are sent in smaller batches if a topic refuses a large one,
// and that a record that is too long on its own is shortened or reported.
func TestSmallTopic(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "2000"}))
	p := producer(t, outboundtest.Local(t), Cluster{Brokers: brokers(t, c), Plain: true})
	var rs []Record
	for i := range 100 {
		noise := make([]byte, 900) // random data cannot be compressed
		_, _ = rand.Read(noise)
		rs = append(rs, Record{Key: []byte("k"), Value: append([]byte(strconv.Itoa(i)+" "), noise...)})
	}
	noise := make([]byte, 20_000)
	_, _ = rand.Read(noise)
	long := Record{Key: []byte("k"), Value: append([]byte("100 "), noise...)}
	long.Shorten = func(most int) ([]byte, error) { return long.Value[:max(most, 10)], nil }
	errtest.Must(t, p.Send(within(t), append(rs, long)))
	long.Shorten = nil
	if err := producer(t, outboundtest.Local(t), Cluster{Brokers: brokers(t, c), Plain: true}).Send(within(t), []Record{long}); err == nil || !strings.Contains(Reason(err), "MESSAGE_TOO_LARGE") {
		t.Errorf("Send of a long record = %v, want MESSAGE_TOO_LARGE", err)
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	errtest.Must(t, err)
	defer reader.Close()
	last := -1
	for last < 100 {
		fetched := reader.PollFetches(within(t))
		errtest.Must(t, fetched.Err())
		fetched.EachRecord(func(r *kgo.Record) {
			text, _, _ := strings.Cut(string(r.Value), " ")
			if n, _ := strconv.Atoi(text); n > last+1 {
				t.Errorf("record %d follows %d, want no gap", n, last)
			} else {
				last = max(last, n)
			}
		})
	}
}

// TestLongRecordIsAlone: a record that is too long makes the producer send fewer records at once,
// and not for ever: those that follow are soon sent in large batches again.
func TestLongRecordIsAlone(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "20000"}))
	var requests atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		return nil, nil, false
	})
	p := producer(t, outboundtest.Local(t), Cluster{Brokers: brokers(t, c), Plain: true})
	noise := make([]byte, 40_000)
	_, _ = rand.Read(noise)
	long := Record{Key: []byte("k"), Value: noise, Shorten: func(most int) ([]byte, error) { return noise[:most], nil }}
	records := []Record{long}
	for i := range 1000 {
		records = append(records, Record{Key: []byte("k"), Value: []byte(strconv.Itoa(i))})
	}
	errtest.Must(t, p.Send(within(t), records))
	// Ten halvings until the long record is alone, two to shorten it, ten doublings.
	if n := requests.Load(); n < 5 || n > 50 {
		t.Errorf("1,001 records take %d requests, want 5 to 50", n)
	}
}
