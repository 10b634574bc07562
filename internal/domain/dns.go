package domain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// lookupTime is how long the look-ups of one verification may take.
const lookupTime = 10 * time.Second

// Resolver looks up DNS names. The zero value uses the system's resolver.
type Resolver struct {
	// Server is the host:port of the resolver to ask; empty: the system's.
	Server string
}

func (r Resolver) resolver() *net.Resolver {
	if r.Server == "" {
		return net.DefaultResolver
	}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, r.Server)
	}}
}

// cname returns the canonical name of a name, in lower case and without a final dot; empty: the
// name does not exist.
func (r Resolver) cname(ctx context.Context, name string) (string, error) {
	got, err := r.resolver().LookupCNAME(ctx, name+".")
	return strings.ToLower(strings.TrimSuffix(got, ".")), ignoreAbsent(err)
}

// txt returns the TXT records of a name.
func (r Resolver) txt(ctx context.Context, name string) ([]string, error) {
	got, err := r.resolver().LookupTXT(ctx, name+".")
	return got, ignoreAbsent(err)
}

// ignoreAbsent returns nil for the error of a name that does not exist: that is an answer, too.
func ignoreAbsent(err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return nil
	}
	return err
}

// checkRecords looks up the records of a domain. Faults: verification_failed, with details about what
// was found instead of missing records; Unavailable if the resolver does not answer.
func (s *Service) checkRecords(ctx context.Context, records []Record) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	var missing []fault.Detail
	routed, found, err := s.routes(ctx, records[0])
	if err != nil {
		return unreachable(err)
	}
	if !routed {
		missing = append(missing, fault.Detail{Pointer: "dns.cname_record", Message: fmt.Sprintf("expected %s; %s", records[0].line(), found)})
	}
	texts, err := s.DNS.txt(ctx, records[1].Name)
	if err != nil {
		return unreachable(err)
	}
	if !slices.Contains(texts, records[1].Value) {
		found := "there is no TXT record"
		if len(texts) > 0 {
			found = fmt.Sprintf("found %d TXT records with other values", len(texts))
		}
		missing = append(missing, fault.Detail{Pointer: "dns.txt_record", Message: fmt.Sprintf("expected %s; %s", records[1].line(), found)})
	}
	if len(missing) == 0 {
		return nil
	}
	f := fault.New(fault.Invalid, "verification_failed", "the domain's DNS records do not exist yet")
	f.Details = missing
	return f
}

// routes reports whether a domain leads to the target of its CNAME record: to this name, or to the
// canonical name of this name. If not, it says what was found.
func (s *Service) routes(ctx context.Context, want Record) (bool, string, error) {
	got, err := s.DNS.cname(ctx, want.Name)
	if err != nil {
		return false, "", err
	}
	if got == want.Value {
		return true, "", nil
	}
	if got == "" || got == want.Name {
		return false, "there is no CNAME record", nil
	}
	further, err := s.DNS.cname(ctx, want.Value)
	if err != nil {
		return false, "", err
	}
	return further == got, "it leads to " + got, nil
}

func unreachable(err error) error {
	return fault.New(fault.Unavailable, "dns_unavailable", "the resolver does not answer: try again").After(30 * time.Second).Because(err)
}
