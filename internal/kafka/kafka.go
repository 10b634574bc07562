// Package kafka sends records to a topic of a Kafka cluster: in order for each key, and
// acknowledged by all replicas that are in sync.
package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// The mechanisms of SASL by which a producer signs in.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

const (
	// maxReply bounds a reply of a broker, in bytes.
	maxReply = 4 << 20
	// ackTime is how long a broker waits for its replicas.
	ackTime = 5 * time.Second
	// deliveryTime is how long a record is tried.
	deliveryTime = 8 * time.Second
)

// Cluster is a topic, and how its cluster is reached.
type Cluster struct {
	// Brokers are those that are asked first for the others.
	Brokers []Broker
	Topic   string
	// Plain means that connections are not encrypted. Only addresses that the operator allows
	// are reached so.
	Plain bool
	// RootCAs replaces the certificate authorities of the client; nil: it does not.
	RootCAs *x509.CertPool
	// Certificate is what the producer proves itself with; nil: nothing.
	Certificate *tls.Certificate
	// Mechanism is that of SASL; empty: the producer does not sign in.
	Mechanism, User, Password string
}

// Broker is the address of a broker.
type Broker struct {
	Host string
	Port uint16
}

// Record is one record. Records with the same key are in one partition, in their order.
type Record struct {
	Key, Value []byte
	// Shorten returns a form of the value of about so many bytes at most, for a topic that does
	// not take the value as it is; nil: there is none.
	Shorten func(most int) ([]byte, error)
}

// Producer sends to one topic. A Send that failed ends it: make another one.
type Producer struct {
	client *kgo.Client
	topic  string
	known  bool // the topic is there, and we may see it
	most   int  // how many records the topic takes at once; 0: all so far
}

// Server is a broker for the guard of outbound.
func (c Cluster) Server(b Broker) outbound.StreamServer {
	return outbound.StreamServer{Host: b.Host, Port: b.Port, Plain: c.Plain, RootCAs: c.RootCAs, Certificate: c.Certificate}
}

// Open makes a producer. It connects when it first sends. Every connection goes through the
// guard, also those to brokers that the cluster names.
func Open(via *outbound.Client, c Cluster) (*Producer, error) {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		host, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, err
		}
		return via.DialStream(ctx, c.Server(Broker{host, uint16(port)}))
	}
	var seeds []string
	for _, b := range c.Brokers {
		seeds = append(seeds, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ClientID("gatehouse"), kgo.Dialer(dial), kgo.BrokerMaxReadBytes(maxReply), kgo.FetchMaxBytes(maxReply),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProduceRequestTimeout(ackTime), kgo.RecordDeliveryTimeout(deliveryTime),
		kgo.RequestRetries(2), kgo.RetryTimeout(deliveryTime), kgo.UnknownTopicRetries(1),
		// A record that is in flight at the end of its time fails, and its producer ends with
		// it. The same record comes again from another producer: at least once.
		kgo.AllowIdempotentProduceCancellation(),
	}
	if m := c.mechanism(); m != nil {
		options = append(options, kgo.SASL(m))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	return &Producer{client: client, topic: c.Topic}, nil
}

func (c Cluster) mechanism() sasl.Mechanism {
	login := scram.Auth{User: c.User, Pass: c.Password}
	switch c.Mechanism {
	case Plain:
		return plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case ScramSHA256:
		return login.AsSha256Mechanism()
	case ScramSHA512:
		return login.AsSha512Mechanism()
	}
	return nil
}

// Close ends the connections. Records that are on their way fail.
func (p *Producer) Close() { p.client.Close() }

// Send sends records and returns once all of them are acknowledged, or with the first error. It
// ends with ctx.
func (p *Producer) Send(ctx context.Context, records []Record) error {
	stop := context.AfterFunc(ctx, p.client.Close)
	defer stop()
	if err := p.findTopic(ctx); err != nil {
		return err
	}
	for len(records) > 0 {
		n := len(records)
		if p.most > 0 {
			n = min(n, p.most)
		}
		err := p.produce(ctx, records[:n])
		switch {
		case err == nil:
			records = records[n:]
			if p.most > 0 { // one long record does not slow down all that come after it
				p.most = 2 * n
			}
		case !errors.Is(err, kerr.MessageTooLarge):
			return err
		case n > 1:
			p.most = n / 2
		default:
			shorter, ok := shorten(records[0])
			if !ok {
				return err
			}
			records = append([]Record{shorter}, records[1:]...)
		}
	}
	return nil
}

// produce sends records at once. A topic has a limit for what comes at once (max.message.bytes),
// which a producer does not learn before it exceeds it.
func (p *Producer) produce(ctx context.Context, records []Record) error {
	batch := make([]*kgo.Record, len(records))
	for i, r := range records {
		batch[i] = &kgo.Record{Topic: p.topic, Key: r.Key, Value: r.Value}
	}
	return p.client.ProduceSync(ctx, batch...).FirstErr()
}

// shorten returns a record with at most half of its value; false: its value cannot be shorter.
func shorten(r Record) (Record, bool) {
	if r.Shorten == nil {
		return r, false
	}
	text, err := r.Shorten(len(r.Value) / 2)
	if err != nil || len(text) >= len(r.Value) {
		return r, false
	}
	r.Value = text
	return r, true
}

// findTopic asks for the topic once, because its absence and a refused sign-in show at once here.
// While it sends, the library tries both again.
func (p *Producer) findTopic(ctx context.Context) error {
	if p.known {
		return nil
	}
	ask := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &p.topic
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(ctx, p.client)
	if err != nil {
		return err
	}
	for _, t := range answer.Topics {
		// Elections pass: the producer waits for them.
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.LeaderNotAvailable) {
			return err
		}
	}
	p.known = true
	return nil
}

// Reason is why records were not sent, for people.
func Reason(err error) string {
	if answered, ok := errors.AsType[*kerr.Error](err); ok {
		switch answered {
		case kerr.UnknownTopicOrPartition:
			return "the cluster has no such topic, or does not show it to this user: " + answered.Message
		case kerr.SaslAuthenticationFailed:
			return "the cluster does not accept the credential: " + answered.Message
		}
		return "the cluster answered " + answered.Message + ": " + answered.Description
	}
	if errors.Is(err, io.EOF) {
		return "the cluster closed the connection without an answer: it may not accept the credential, or expect another protocol (TLS or not, SASL or not)"
	}
	if refused, ok := errors.AsType[*fault.Error](err); ok {
		return fault.Message(refused)
	}
	return "the cluster could not be reached, or did not acknowledge in time"
}
