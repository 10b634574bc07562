package native

import (
	"net/netip"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/builtin"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// specialise compiles calls that are faster if a constant operand is parsed at compile time. It
// returns nil for all others.
func (b *builtinCall) specialise(s *Scope) Term {
	switch b.name {
	case "time.now_ns":
		return func(m *Machine) value.Value { return value.Int(m.Now()) }
	case "net.cidr_contains":
		if text, ok := b.args[0].Value.(ast.String); ok {
			if p, err := netip.ParsePrefix(string(text)); err == nil {
				return b.inNetwork(s, p.Masked())
			}
		}
	case "regex.match":
		if text, ok := b.args[0].Value.(ast.String); ok {
			p, big := builtin.CompilePattern(string(text))
			if big {
				fail("a regular expression of this size")
			}
			if p.Valid() {
				return b.matches(s, p)
			}
		}
	}
	return nil
}

func (b *builtinCall) inNetwork(s *Scope, p netip.Prefix) Term {
	slow, network, subject := b.bridge(s), s.Term(b.args[0]), s.Term(b.args[1])
	return func(m *Machine) value.Value {
		v := subject(m)
		if text, ok := v.Str(); ok {
			if in, ok := builtin.InNetwork(p, text); ok {
				return value.Bool(in)
			}
		}
		if !v.Defined() {
			return v
		}
		return slow(&m.Memory, network(m), v)
	}
}

func (b *builtinCall) matches(s *Scope, p *builtin.Pattern) Term {
	slow, expr, subject := b.bridge(s), s.Term(b.args[0]), s.Term(b.args[1])
	return func(m *Machine) value.Value {
		v := subject(m)
		if text, ok := v.Str(); ok {
			return m.Search(p, text)
		}
		if !v.Defined() {
			return v
		}
		return slow(&m.Memory, expr(m), v)
	}
}
