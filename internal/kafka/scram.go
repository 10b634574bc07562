package kafka

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"github.com/twmb/franz-go/pkg/sasl"
)

// mostRounds is how often a broker may have the password hashed for SCRAM. Kafka itself allows 16,384.
// The library allows a million, which takes a second of processor time for each connection.
const mostRounds = 100_000

// errManyRounds means that a broker demands more than mostRounds.
var errManyRounds = errors.New("kafka: the cluster demands too many iterations of SCRAM")

// boundedScram is a SCRAM mechanism that refuses brokers that demand too many iterations.
type boundedScram struct{ sasl.Mechanism }

// Authenticate implements sasl.Mechanism.
func (m boundedScram) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	s, first, err := m.Mechanism.Authenticate(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	return boundedSession{s}, first, nil
}

type boundedSession struct{ sasl.Session }

// Challenge implements sasl.Session. Only the first message of a server has iterations (RFC 5802
// section 5.1).
func (s boundedSession) Challenge(message []byte) (bool, []byte, error) {
	for part := range bytes.SplitSeq(message, []byte(",")) {
		if rounds, ok := bytes.CutPrefix(part, []byte("i=")); ok {
			if n, err := strconv.Atoi(string(rounds)); err == nil && n > mostRounds {
				return false, nil, errManyRounds
			}
		}
	}
	return s.Session.Challenge(message)
}
