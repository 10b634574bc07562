package native

import (
	"encoding/base64"
	"errors"
	"math/big"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/builtin"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// seen records what topdown met in an evaluation, to know whether the native evaluator may have
// stopped at one of the documented limits.
type seen struct {
	outside bool // a number outside the range
	rounded bool // a number that is rounded: written with an exponent, exact with more than 64 digits
	// malformed is a number in a spelling that JSON does not have: to_number("+1").
	malformed bool
	large     bool // an operand or result beyond the limit for a built-in
	events    int
	bytes     int             // allocated by built-ins
	codes     map[string]bool // of errors
}

// bound reports whether an evaluation may stop at a limit. One with a few thousand events is far
// from the limits on steps and bytes.
func (s *seen) bound() bool { return s.outside || s.large || s.events > 50_000 || s.bytes > 2<<20 }

func (s *seen) add(o *seen, err error) {
	s.outside, s.rounded, s.large = s.outside || o.outside, s.rounded || o.rounded, s.large || o.large
	s.events, s.bytes = s.events+o.events, s.bytes+o.bytes
	if s.codes == nil {
		s.codes = map[string]bool{}
	}
	te, failed := errors.AsType[*topdown.Error](err)
	switch {
	case failed:
		s.codes[te.Code] = true
	case errors.Is(err, value.ErrRange):
		s.outside = true
	}
}

// has reports whether topdown met an error of a kind, or failed itself.
func (s *seen) has(code string) bool { return s.codes[code] || s.codes[topdown.InternalErr] }

// Enabled, TraceEvent and Config implement topdown.QueryTracer.
func (s *seen) Enabled() bool             { return true }
func (s *seen) TraceEvent(topdown.Event)  { s.events++ }
func (*seen) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// watched is the current evaluation of topdown.
var watched atomic.Pointer[seen]

// TestMain wraps OPA's built-ins to watch them. Calls by the native evaluator are not watched.
func TestMain(m *testing.M) {
	for _, b := range offered() {
		watch(b)
	}
	os.Exit(m.Run())
}

func watch(b *ast.Builtin) {
	run := topdown.GetBuiltin(b.Name)
	if run == nil {
		return
	}
	topdown.RegisterBuiltinFunc(b.Name, func(bctx topdown.BuiltinContext, args []*ast.Term, iter func(*ast.Term) error) error {
		s := watched.Load()
		if s == nil {
			return run(bctx, args, iter)
		}
		exp := false
		for _, a := range args {
			s.operand(b.Name, a)
			exp = exp || inExponent(a) || (b.Name == "sum" || b.Name == "product") && strings.ContainsAny(a.String(), "eE.")
		}
		if endless(b.Name, args[:b.Decl.Arity()]) {
			s.large = true
			return topdown.Halt{Err: &topdown.Error{Code: topdown.CancelErr}}
		}
		return run(bctx, args, func(out *ast.Term) error {
			v, err := value.FromAST(out.Value)
			switch s.bytes += int(v.Size()); {
			case errors.Is(err, value.ErrRange):
				s.outside = true
				s.rounded = s.rounded || exp
			case err != nil:
				s.malformed = true
			}
			return iter(out)
		})
	})
}

// inExponent reports whether a term is a number in exponent notation.
func inExponent(t *ast.Term) bool {
	n, ok := t.Value.(ast.Number)
	return ok && strings.ContainsAny(string(n), "eE")
}

var numeral = regexp.MustCompile(`[-+]?[0-9.]+([eE][-+]?[0-9]+)?`)

// operand checks an operand against the limits.
func (s *seen) operand(name string, a *ast.Term) {
	text := a.String()
	if len(text) > builtin.MaxOperands/4 {
		s.large = true
	}
	if strings.HasPrefix(name, "io.jwt.") {
		for part := range strings.SplitSeq(text, ".") {
			plain, _ := base64.RawURLEncoding.DecodeString(strings.Trim(part, `"`))
			text += " " + string(plain)
		}
	}
	switch {
	case strings.HasPrefix(name, "io.jwt."), strings.HasSuffix(name, ".unmarshal"), strings.HasPrefix(name, "units."), name == "to_number":
		for _, n := range numeral.FindAllString(text, -1) {
			if builtin.OutOfRange(n) {
				s.outside = true
			}
		}
	case name == "glob.match" || strings.HasPrefix(name, "regex."):
		s.large = s.large || len(text) > builtin.MaxGlobSet
	}
}

// endless reports whether topdown would take too much time or memory.
func endless(name string, args []*ast.Term) bool {
	var ns []*big.Int
	for _, a := range args {
		n, ok := a.Value.(ast.Number)
		if !ok {
			break
		}
		r, ok := new(big.Rat).SetString(string(n))
		if !ok || !r.IsInt() {
			break
		}
		ns = append(ns, r.Num())
	}
	switch name {
	case "numbers.range", "numbers.range_step":
		if len(ns) < len(args) || len(ns) > 2 && ns[2].Sign() <= 0 {
			return false
		}
		return new(big.Int).Sub(ns[0], ns[1]).BitLen() > 16
	case "bits.lsh", "bits.rsh":
		return len(ns) == 2 && ns[1].CmpAbs(big.NewInt(builtin.MaxBits)) > 0 && ns[1].Sign() > 0
	case "net.cidr_expand":
		text, _ := args[0].Value.(ast.String)
		p, err := netip.ParsePrefix(string(text))
		return err == nil && p.Addr().BitLen()-p.Bits() > builtin.MaxHostBits
	}
	return false
}
