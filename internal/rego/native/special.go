package native

import (
	"net/netip"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// special compiles calls that gain from knowing their constant operands.
func (s *scope) special(name string, args []*ast.Term) term {
	switch name {
	case "time.now_ns":
		return func(m *machine) value.Value { return value.Int(m.now()) }
	case "net.cidr_contains":
		if text, ok := args[0].Value.(ast.String); ok {
			if p, err := netip.ParsePrefix(string(text)); err == nil {
				return s.inNetwork(name, p.Masked(), args)
			}
		}
	case "regex.match":
		if text, ok := args[0].Value.(ast.String); ok {
			p, big := compilePattern(string(text))
			if big {
				fail("a regular expression of this size")
			}
			if p.err == nil {
				return s.matches(p, args)
			}
		}
	}
	return nil
}

func (s *scope) inNetwork(name string, p netip.Prefix, args []*ast.Term) term {
	slow, network, subject := s.bridge(name), s.term(args[0]), s.term(args[1])
	return func(m *machine) value.Value {
		v := subject(m)
		if text, ok := v.Str(); ok {
			if in, ok := contains(p, text); ok {
				return value.Bool(in)
			}
		}
		if !v.Defined() {
			return v
		}
		return slow(m, network(m), v)
	}
}

func (s *scope) matches(p *pattern, args []*ast.Term) term {
	slow, expr, subject := s.bridge("regex.match"), s.term(args[0]), s.term(args[1])
	return func(m *machine) value.Value {
		v := subject(m)
		if text, ok := v.Str(); ok {
			if m.err != nil || m.searching(p, text) {
				return value.Value{}
			}
			return value.Bool(p.re.MatchString(text))
		}
		if !v.Defined() {
			return v
		}
		return slow(m, expr(m), v)
	}
}
