package source

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	ber "github.com/go-asn1-ber/asn1-ber"
	"github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// pageSize is how many entries are requested at a time (RFC 2696). Directories often return at most
// 1,000.
const pageSize = 500

// boundMessages limits the length that a directory can announce for a message, because the library
// allocates that much at once.
var boundMessages = sync.OnceFunc(func() { ber.MaxPacketLengthBytes = MaxBytes })

// scopes are the scopes of a search, by their names in Search.Scope.
var scopes = map[string]int{"": ldap.ScopeWholeSubtree, "sub": ldap.ScopeWholeSubtree, "one": ldap.ScopeSingleLevel, "base": ldap.ScopeBaseObject}

// attribute matches the name or OID of an attribute, with options (RFC 4512, 2.5).
var attribute = regexp.MustCompile(`^([A-Za-z][-A-Za-z0-9]*|[0-9]+(\.[0-9]+)+)(;[-A-Za-z0-9]+)*$`)

var errNoStartTLS = &Failure{Message: "the directory did not begin to encrypt (StartTLS), or its certificate is not valid"}

func attributeName(text string) bool { return len(text) <= 200 && attribute.MatchString(text) }

// search checks the search of a directory.
func (k *checker) search(c Config) {
	if c.LDAP == nil {
		return
	}
	const at = "/configuration/ldap"
	if _, err := ldap.ParseDN(c.LDAP.BaseDN); err != nil {
		k.add(at+"/base_dn", "is not a distinguished name")
	}
	if _, err := ldap.CompileFilter(c.LDAP.filter()); err != nil {
		k.add(at+"/filter", "is not a filter such as (objectClass=person)")
	}
	if len(c.LDAP.Attributes)+len(c.LDAP.Lists) == 0 {
		k.add(at+"/attributes", "must name an attribute, unless lists does")
	}
	seen := map[string]bool{"dn": true}
	for _, m := range []struct {
		name  string
		names []string
	}{{"attributes", c.LDAP.Attributes}, {"lists", c.LDAP.Lists}} {
		for i, name := range m.names {
			pointer, lower := fmt.Sprintf("%s/%s/%d", at, m.name, i), strings.ToLower(name)
			switch {
			case !attributeName(name):
				k.add(pointer, "is not the name of an attribute")
			case seen[lower]:
				k.add(pointer, "is there already; each record has dn by itself")
			}
			seen[lower] = true
		}
	}
}

func (s *Search) filter() string {
	if s.Filter == "" {
		return "(objectClass=*)"
	}
	return s.Filter
}

// readLDAP adds the entries that a search finds, page by page.
func (r *run) readLDAP(ctx context.Context, b *builder) error {
	conn, err := r.connectLDAP(ctx)
	if err != nil {
		return r.failedLDAP(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		stop()
		_ = conn.Close()
	}()
	paging := ldap.NewControlPaging(pageSize)
	for range MaxPages {
		if err := r.checkAlive(ctx); err != nil {
			return err
		}
		res, err := conn.Search(r.searchRequest(paging))
		if err != nil {
			return r.failedLDAP(ctx, err)
		}
		err = r.addEntries(b, res.Entries)
		if err == nil {
			err = r.reserve(ctx, b.size)
		}
		if err != nil {
			return err
		}
		next, _ := ldap.FindControl(res.Controls, ldap.ControlTypePaging).(*ldap.ControlPaging)
		if next == nil || len(next.Cookie) == 0 || r.order.Sample {
			r.noteFull()
			if r.Incremental != nil {
				r.state.Since = r.began.UTC().Add(-overlap)
			}
			return nil
		}
		paging.SetCookie(next.Cookie)
	}
	return failf("the source has more than %d pages", MaxPages)
}

// connectLDAP connects and signs in. The connection is always encrypted, and r.Target refuses
// addresses that the operator does not allow.
func (r *run) connectLDAP(ctx context.Context) (*ldap.Conn, error) {
	server, _, err := serverOf(LDAP, r.URL)
	if err != nil {
		return nil, err
	}
	raw, err := r.Target.Dial(ctx, server)
	if err != nil {
		return nil, err
	}
	boundMessages()
	encrypted, err := encrypt(ctx, raw, r.Target.TLS(server.Host), strings.HasPrefix(r.URL, "ldaps:"))
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	conn := ldap.NewConn(encrypted, true)
	conn.SetTimeout(CallTime)
	conn.Start()
	if s := r.order.Credentials; s.Username != "" {
		if err := conn.Bind(s.Username, s.Password); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

func (r *run) searchRequest(paging *ldap.ControlPaging) *ldap.SearchRequest {
	filter := r.LDAP.filter()
	if !r.since.IsZero() {
		filter = fmt.Sprintf("(&%s(%s>=%s))", filter, r.Incremental.Parameter, r.since.Format("20060102150405Z"))
	}
	return &ldap.SearchRequest{
		BaseDN: r.LDAP.BaseDN, Scope: scopes[r.LDAP.Scope], DerefAliases: ldap.NeverDerefAliases, Filter: filter,
		Attributes: slices.Concat(r.LDAP.Attributes, r.LDAP.Lists), Controls: []ldap.Control{paging},
	}
}

// addEntries adds the entries of a page.
func (r *run) addEntries(b *builder, entries []*ldap.Entry) error {
	records := make([]value.Value, len(entries))
	for i, e := range entries {
		members := []value.Member{{Key: "dn", Value: textOf([]byte(e.DN))}}
		for _, name := range r.LDAP.Attributes {
			if values, _ := valuesOf(e, name); len(values) > 0 {
				members = append(members, value.Member{Key: name, Value: textOf(values[0])})
			}
		}
		for _, name := range r.LDAP.Lists {
			values, whole := valuesOf(e, name)
			if !whole {
				return failf("the directory returned only a part of the values of %s: an entry has too many for one answer", name)
			}
			list := make([]value.Value, len(values))
			for j, v := range values {
				list[j] = textOf(v)
			}
			members = append(members, value.Member{Key: name, Value: value.Array(list...)})
		}
		records[i] = value.Object(members...)
	}
	_, err := b.add(value.Array(records...))
	return err
}

// valuesOf returns the values of an attribute of an entry. whole is false if the directory returned
// only a range of them, as some do for long lists: "member;range=0-1499".
func valuesOf(e *ldap.Entry, name string) (values [][]byte, whole bool) {
	for _, a := range e.Attributes {
		if strings.EqualFold(a.Name, name) && len(a.ByteValues) > 0 {
			return a.ByteValues, true
		}
		if base, option, _ := strings.Cut(strings.ToLower(a.Name), ";"); base == strings.ToLower(name) && strings.HasPrefix(option, "range=") {
			return nil, false
		}
	}
	return nil, true
}

// textOf returns a value as a text: itself, or base64 if it is not UTF-8.
func textOf(v []byte) value.Value {
	if utf8.Valid(v) {
		return value.String(string(v))
	}
	return value.String(base64.StdEncoding.EncodeToString(v))
}

// failedLDAP returns a failure as the owner of the source sees it. It leaves out the directory's
// own message, which can contain data.
func (r *run) failedLDAP(ctx context.Context, err error) error {
	_, known := errors.AsType[*Failure](err)
	answer, answered := errors.AsType[*ldap.Error](err)
	switch {
	case ended(ctx, err):
		return context.Cause(ctx)
	case known:
		return err
	case answered && answer.ResultCode < ldap.ErrorNetwork:
		return failf("the directory answered with the error %d (%s)", answer.ResultCode, ldap.LDAPResultCodeMap[answer.ResultCode])
	}
	return failedConn(err, "directory")
}

// ended reports whether a call failed because its context ended. A connection has the deadline of
// its context and can notice it first, so ended waits for the context too.
func ended(ctx context.Context, err error) bool {
	if at, set := ctx.Deadline(); set && errors.Is(err, os.ErrDeadlineExceeded) && time.Until(at) < time.Second {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// failedConn returns the failure of a connection as the owner of the source sees it. peer is
// "directory" or "database".
func failedConn(err error, peer string) error {
	if fault.Is(err, fault.BadGateway) {
		return failf("the source could not be reached")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return failf("the certificate of the %s is not valid", peer)
	}
	return failf("the connection to the %s failed, or the %s answered with more than %d MiB", peer, peer, MaxBytes>>20)
}
