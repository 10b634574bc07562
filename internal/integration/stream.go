package integration

import (
	"context"
	"crypto/tls"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/kafka"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

const (
	kafkaScheme      = "kafka+tls://"
	plainKafkaScheme = "kafka://"
	kafkaPort        = 9093
	plainKafkaPort   = 9092
	// maxBrokers is the largest number of brokers in an endpoint.
	maxBrokers = 10
	// maxRecord is the longest value of a record, in bytes. By default brokers accept about a
	// megabyte.
	maxRecord = 900_000
	// keepProducer is how long a producer is kept after its last use.
	keepProducer = 10 * time.Minute
	// sendTime is the longest time for sending one parcel to a cluster.
	sendTime = 20 * time.Second
)

// topicName matches the names that Kafka allows for topics.
var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// usesKafka reports whether an integration is a SIEM with a Kafka endpoint.
func usesKafka(it Integration) bool {
	return it.Kind == SIEM && (strings.HasPrefix(it.Endpoint, kafkaScheme) || strings.HasPrefix(it.Endpoint, plainKafkaScheme))
}

// clusterOf returns the Kafka cluster of an integration. Its error names the member that is not
// valid.
func clusterOf(it Integration, secrets map[string]string) (kafka.Cluster, error) {
	list, encrypted := strings.CutPrefix(it.Endpoint, kafkaScheme)
	c := kafka.Cluster{Plain: !encrypted}
	port := uint16(kafkaPort)
	if !encrypted {
		list, port = strings.TrimPrefix(it.Endpoint, plainKafkaScheme), plainKafkaPort
	}
	for text := range strings.SplitSeq(list, ",") {
		b, ok := brokerOf(text, port)
		if !ok || len(c.Brokers) == maxBrokers {
			return c, fault.Invalidf("/endpoint", "must be %shost:port, with a comma between brokers and at most %d of them", kafkaScheme, maxBrokers)
		}
		c.Brokers = append(c.Brokers, b)
	}
	c.Topic, _ = it.Settings[settingTopic].(string)
	var err error
	if c.RootCAs, err = authorities(it.Settings[settingCAs]); err != nil {
		return c, fault.Invalidf("/settings/"+settingCAs, "%s", err)
	}
	if secrets[clientCertificate] != "" {
		pair, err := tls.X509KeyPair([]byte(secrets[clientCertificate]), []byte(secrets[clientKey]))
		if err != nil {
			return c, fault.Invalidf("/credential/"+clientCertificate, "must be a certificate in PEM, with its key in %s", clientKey)
		}
		c.Certificate = &pair
	}
	if secrets[format.Username] != "" {
		c.User, c.Password, c.Mechanism = secrets[format.Username], secrets[format.Password], kafka.ScramSHA512
		if chosen, _ := it.Settings[settingMechanism].(string); chosen != "" {
			c.Mechanism = chosen
		}
	}
	return c, nil
}

// brokerOf reads host and port of a broker. port is the default.
func brokerOf(text string, port uint16) (b kafka.Broker, ok bool) {
	u, err := url.Parse("https://" + text)
	if err != nil || u.Host != text || u.Hostname() == "" {
		return b, false
	}
	b = kafka.Broker{Host: u.Hostname(), Port: port}
	if text := u.Port(); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
			return b, false
		}
		b.Port = uint16(n)
	}
	return b, !strings.HasSuffix(text, ":")
}

// checkKafka returns the errors in the settings and the credential of a SIEM in Kafka.
func checkKafka(it Integration, secrets map[string]string) (offences []fault.Detail) {
	add := func(pointer, message string) {
		offences = append(offences, fault.Detail{Pointer: pointer, Message: message})
	}
	if topic, _ := it.Settings[settingTopic].(string); !topicName.MatchString(topic) || topic == "." || topic == ".." {
		add("/settings/"+settingTopic, "must be the name of a topic: letters, digits, dots, hyphens and underscores")
	}
	for _, name := range []string{settingScheme, settingConfirm} {
		if it.Settings[name] != nil {
			add("/settings/"+name, "is not for a kafka endpoint")
		}
	}
	if it.Settings[settingMechanism] != nil && secrets[format.Username] == "" {
		add("/settings/"+settingMechanism, "needs a credential with "+format.Username+" and "+format.Password)
	}
	if secrets[format.BearerToken] != "" || secrets[format.HMACSecret] != "" {
		add("/credential", "Kafka gets "+format.Username+" and "+format.Password+", a client certificate, or nothing")
	}
	if strings.HasPrefix(it.Endpoint, plainKafkaScheme) {
		if it.Settings[settingCAs] != nil {
			add("/settings/"+settingCAs, "is only for a kafka+tls endpoint")
		}
		if secrets[clientCertificate] != "" {
			add("/credential", "a client certificate is only for a kafka+tls endpoint")
		}
	}
	return offences
}

// checkKafkaTarget refuses brokers that the operator does not allow.
func (s *Service) checkKafkaTarget(ctx context.Context, it Integration, secrets map[string]string) error {
	c, err := clusterOf(it, secrets)
	if err != nil {
		return err
	}
	for _, b := range c.Brokers {
		if err := s.Target.CheckStream(ctx, "/endpoint", c.Server(b)); err != nil {
			return err
		}
	}
	return nil
}

// records returns the records of entries. The key consists of tenant and chain, so one partition
// contains a whole chain, in order.
func records(it Integration, lines []tail.Line) ([]kafka.Record, error) {
	kind := formatOf(it)
	out := make([]kafka.Record, 0, len(lines))
	for _, l := range lines {
		text, err := entryText(kind, false, l)
		if err == nil && len(text) > maxRecord {
			text, err = shortLine(l, maxRecord)
		}
		if err != nil {
			return nil, err
		}
		shorten := func(most int) ([]byte, error) { return shortLine(l, most) }
		out = append(out, kafka.Record{Key: []byte(l.Tenant + "/" + l.Chain), Value: text, Shorten: shorten})
	}
	return out, nil
}

// producers keeps the producers of a replica's lanes open, because each new one costs the cluster a
// producer id.
type producers struct {
	mu   sync.Mutex
	open map[job.LaneKey]*openProducer
}

type openProducer struct {
	*kafka.Producer
	changeNo int64
	used     time.Time
}

// take returns the producer of a lane. It opens a new one if there is none for this version of the
// integration.
func (ps *producers) take(key job.LaneKey, changeNo int64, now time.Time, open func() (*kafka.Producer, error)) (*kafka.Producer, error) {
	ps.closeSelected(func(at job.LaneKey, k *openProducer) bool { return at == key && k.changeNo != changeNo })
	ps.mu.Lock()
	defer ps.mu.Unlock()
	k := ps.open[key]
	if k == nil {
		p, err := open()
		if err != nil {
			return nil, err
		}
		if ps.open == nil {
			ps.open = map[job.LaneKey]*openProducer{}
		}
		k = &openProducer{Producer: p, changeNo: changeNo}
		ps.open[key] = k
	}
	k.used = now
	return k.Producer, nil
}

// drop closes the producer of a lane.
func (ps *producers) drop(key job.LaneKey) {
	ps.closeSelected(func(at job.LaneKey, _ *openProducer) bool { return at == key })
}

// closeUnused closes the producers that were last used before a time.
func (ps *producers) closeUnused(before time.Time) {
	ps.closeSelected(func(_ job.LaneKey, k *openProducer) bool { return k.used.Before(before) })
}

// closeSelected closes the producers that which selects. It does not hold the lock while their connections
// close, so other lanes do not wait.
func (ps *producers) closeSelected(which func(job.LaneKey, *openProducer) bool) {
	var over []*openProducer
	ps.mu.Lock()
	for key, k := range ps.open {
		if which(key, k) {
			delete(ps.open, key)
			over = append(over, k)
		}
	}
	ps.mu.Unlock()
	for _, k := range over {
		k.Close()
	}
}

// produce sends the records of a parcel. It returns why they were not acknowledged; "": they were.
// keep holds producers for later parcels; nil: the producer is used once.
func (s *Service) produce(ctx context.Context, key job.LaneKey, it Integration, secrets map[string]string, rs []kafka.Record, keep *producers) string {
	open := func() (*kafka.Producer, error) {
		c, err := clusterOf(it, secrets)
		if err != nil {
			return nil, err
		}
		return kafka.Open(s.Target, c)
	}
	once := keep == nil
	if once {
		keep = &producers{}
	}
	producer, err := keep.take(key, it.ChangeNo, s.Now(), open)
	if err != nil {
		return fault.Message(err)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	err = producer.Send(ctx, rs)
	if err != nil || once {
		keep.drop(key)
	}
	if err != nil {
		return kafka.Reason(err)
	}
	return ""
}

// origin returns scheme and host of an endpoint, for Kafka all its brokers. A credential is bound
// to it, and the audit shows it.
func origin(endpoint string) string {
	for _, scheme := range []string{kafkaScheme, plainKafkaScheme} {
		if list, ok := strings.CutPrefix(endpoint, scheme); ok && list != "" {
			brokers := strings.Split(strings.ToLower(list), ",")
			slices.Sort(brokers)
			return scheme + strings.Join(brokers, ",")
		}
	}
	return outbound.Origin(endpoint)
}

func sameOrigin(a, b string) bool { return origin(a) != "" && origin(a) == origin(b) }
