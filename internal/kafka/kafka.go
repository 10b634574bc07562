// Package kafka sends records to a topic of a Kafka cluster. Records with one key keep their order,
// and all in-sync replicas acknowledge each record.
package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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

// The SASL mechanisms with which a producer can sign in.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

const (
	// ackTime is how long a broker waits for its replicas.
	ackTime = 5 * time.Second
	// deliveryTime is how long the client tries to deliver a record.
	deliveryTime = 8 * time.Second
)

// Cluster is a topic, and how to reach its cluster.
type Cluster struct {
	// Brokers are the brokers that are asked first; they name the others.
	Brokers []Broker
	Topic   string
	// Plain means that connections are not encrypted. This works only for addresses that the
	// operator allows.
	Plain bool
	// RootCAs replaces the client's certificate authorities; nil: keep them.
	RootCAs *x509.CertPool
	// Certificate is the producer's TLS client certificate; nil: none.
	Certificate *tls.Certificate
	// Mechanism is the SASL mechanism; "": the producer does not sign in.
	Mechanism, User, Password string
}

// Broker is the address of a broker.
type Broker struct {
	Host string
	Port uint16
}

// Record is one record. Records with the same key go to one partition, in their order.
type Record struct {
	Key, Value []byte
	// Shorten returns a shorter form of the value, of about most bytes, for a topic that refuses
	// the whole value; nil: there is none.
	Shorten func(most int) ([]byte, error)
}

// Producer sends to one topic. Do not use it after a Send has failed: open another one.
type Producer struct {
	client *kgo.Client
	topic  string
	known  bool // the topic exists, and we may see it
	most   int  // how many records the topic accepts at once; 0: no limit is known
}

// Server returns a broker as the server that outbound checks and calls.
func (c Cluster) Server(b Broker) outbound.StreamServer {
	return outbound.StreamServer{Host: b.Host, Port: b.Port, Plain: c.Plain, RootCAs: c.RootCAs, Certificate: c.Certificate}
}

// Open returns a producer. It connects at the first Send. Every connection goes through via,
// including those to brokers that the cluster names.
func Open(via *outbound.Client, c Cluster) (*Producer, error) {
	named := &claims{}
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		host, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, err
		}
		conn, err := via.DialStream(ctx, c.Server(Broker{host, uint16(port)}))
		if err != nil {
			return nil, err
		}
		return &checkedConn{Conn: conn, claims: named}, nil
	}
	var seeds []string
	for _, b := range c.Brokers {
		seeds = append(seeds, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ClientID("gatehouse"), kgo.Dialer(dial), kgo.BrokerMaxReadBytes(maxReply), kgo.FetchMaxBytes(maxReply),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProduceRequestTimeout(ackTime), kgo.RecordDeliveryTimeout(deliveryTime),
		kgo.RequestRetries(2), kgo.RetryTimeout(deliveryTime), kgo.UnknownTopicRetries(1),
		// A record that is in flight when its time ends fails, and its producer ends with it. The
		// caller sends the same record again with another producer, so it is delivered at least
		// once.
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

// mechanism returns the SASL mechanism with its credential; nil: none.
func (c Cluster) mechanism() sasl.Mechanism {
	login := scram.Auth{User: c.User, Pass: c.Password}
	switch c.Mechanism {
	case Plain:
		return plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case ScramSHA256:
		return boundedScram{login.AsSha256Mechanism()}
	case ScramSHA512:
		return boundedScram{login.AsSha512Mechanism()}
	}
	return nil
}

// Close ends the connections. Records in flight fail.
func (p *Producer) Close() { p.client.Close() }

// Send sends records, and returns when all of them are acknowledged, or the first error. When ctx
// ends, it closes the producer.
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
			if p.most > 0 { // one long record must not slow down all that follow
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

// produce sends records in one batch. A topic limits the size of a batch (max.message.bytes), and a
// producer learns the limit only by exceeding it.
func (p *Producer) produce(ctx context.Context, records []Record) error {
	batch := make([]*kgo.Record, len(records))
	for i, r := range records {
		batch[i] = &kgo.Record{Topic: p.topic, Key: r.Key, Value: r.Value}
	}
	return p.client.ProduceSync(ctx, batch...).FirstErr()
}

// shorten returns a record whose value has about half the length. It returns false if the value
// cannot be shortened.
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

// findTopic asks for the topic before the first batch, because this request fails at once if the
// topic does not exist or the sign-in is refused. When it produces, the library retries in both
// cases.
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
		// An election of a leader ends soon, and the producer waits for it.
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.LeaderNotAvailable) {
			return err
		}
	}
	p.known = true
	return nil
}

// Reason returns a text for people: why records were not sent.
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
	if errors.Is(err, errTooMany) {
		return fmt.Sprintf("the cluster names more than %d brokers, or %d partitions of the topic", mostBrokers, mostPartitions)
	}
	if errors.Is(err, errManyRounds) {
		return fmt.Sprintf("the cluster demands more than %d iterations of SCRAM", mostRounds)
	}
	if errors.Is(err, io.EOF) {
		return "the cluster closed the connection without an answer: it may not accept the credential, or expect another protocol (TLS or not, SASL or not)"
	}
	if refused, ok := errors.AsType[*fault.Error](err); ok {
		return fault.Message(refused)
	}
	return "the cluster could not be reached, or did not acknowledge in time"
}
