package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
)

// TestClusterThatClaimsTooMuch checks that metadata with very many brokers, partitions or replicas
// are refused with a reason, at once and without memory for them.
func TestClusterThatClaimsTooMuch(t *testing.T) {
	t.Parallel()
	via := outboundtest.Local(t)
	for name, inflate := range map[string]func(m *kmsg.MetadataResponse){
		"brokers": func(m *kmsg.MetadataResponse) {
			for i := range int32(mostBrokers) {
				other := m.Brokers[0]
				other.NodeID += i + 1
				m.Brokers = append(m.Brokers, other)
			}
		},
		"partitions": func(m *kmsg.MetadataResponse) {
			for i := int32(len(m.Topics[0].Partitions)); i <= mostPartitions; i++ {
				other := m.Topics[0].Partitions[0]
				other.Partition = i
				m.Topics[0].Partitions = append(m.Topics[0].Partitions, other)
			}
		},
		"replicas": func(m *kmsg.MetadataResponse) {
			p := &m.Topics[0].Partitions[0]
			for i := range int32(mostBrokers + 1) {
				p.Replicas = append(p.Replicas, i)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			c.ControlKey(int16(kmsg.Metadata), func(k kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				ask := k.(*kmsg.MetadataRequest)
				answer := ask.ResponseKind().(*kmsg.MetadataResponse)
				at := brokers(t, c)[0]
				b := kmsg.NewMetadataResponseBroker()
				b.Host, b.Port = at.Host, int32(at.Port)
				answer.Brokers = append(answer.Brokers, b)
				name := topic
				found := kmsg.NewMetadataResponseTopic()
				found.Topic = &name
				found.Partitions = append(found.Partitions, kmsg.NewMetadataResponseTopicPartition())
				answer.Topics = append(answer.Topics, found)
				inflate(answer)
				return answer, nil, true
			})
			err := producer(t, via, Cluster{Brokers: brokers(t, c), Plain: true}).Send(within(t), batch("k", 1))
			if err == nil || !strings.Contains(Reason(err), "names more than") {
				t.Errorf("Send = %v (%s), want the metadata refused", err, Reason(err))
			}
		})
	}
}

// TestClusterThatChangesItsClaims checks that brokers that a cluster named before count too.
func TestClusterThatChangesItsClaims(t *testing.T) {
	reply := func(first int32) []byte {
		m := kmsg.NewPtrMetadataResponse()
		for i := range int32(mostBrokers) {
			b := kmsg.NewMetadataResponseBroker()
			b.NodeID = first + i
			m.Brokers = append(m.Brokers, b)
		}
		return m.AppendTo(nil)
	}
	c := &claims{}
	for range 2 {
		errtest.Must(t, c.check(0, reply(0)))
	}
	if err := c.check(0, reply(1)); !errors.Is(err, errTooMany) {
		t.Errorf("check of one more broker = %v, want %v", err, errTooMany)
	}
}

// TestLargeCluster checks that a topic with as many partitions as are allowed gets its records.
func TestLargeCluster(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(mostPartitions, "large"))
	p, err := Open(outboundtest.Local(t), Cluster{Brokers: brokers(t, c), Plain: true, Topic: "large"})
	errtest.Must(t, err)
	t.Cleanup(p.Close)
	errtest.Must(t, p.Send(within(t), batch("k", 3)))
}

// TestBrokerThatDemandsMuchHashing checks that a sign-in ends with a reason if the broker demands very
// many iterations.
func TestBrokerThatDemandsMuchHashing(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{ScramSHA256, ScramSHA512} {
		c := cluster(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "ada", "secret"))
		c.ControlKey(int16(kmsg.SASLAuthenticate), func(k kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			ask := k.(*kmsg.SASLAuthenticateRequest)
			answer := ask.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			_, nonce, _ := strings.Cut(string(ask.SASLAuthBytes), ",r=")
			answer.SASLAuthBytes = fmt.Appendf(nil, "r=%s,s=c2FsdA==,i=%d", nonce, mostRounds+1)
			return answer, nil, true
		})
		p := producer(t, outboundtest.Local(t), Cluster{Brokers: brokers(t, c), Plain: true, Mechanism: mechanism, User: "ada", Password: "secret"})
		if err := p.Send(within(t), batch("k", 1)); err == nil || !strings.Contains(Reason(err), "iterations of SCRAM") {
			t.Errorf("Send with %s = %v (%s), want the iterations refused", mechanism, err, Reason(err))
		}
	}
}
