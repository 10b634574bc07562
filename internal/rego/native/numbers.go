package native

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The built-ins that make numbers. All numbers of an evaluation are within the
// range of value.Number, so that each step of arithmetic takes a bounded time;
// what leads out of it ends the evaluation.

// number makes a value of a result; outside of the range it is ErrLimit.
func (m *machine) number(text string) value.Value {
	v, err := value.Number(text)
	if err != nil {
		m.fail(ErrLimit)
		return value.Value{}
	}
	return v
}

// total is sum or product.
func total(start int64, exact func(z, x, y *big.Int) *big.Int, rounded func(z, x, y *big.Float) *big.Float) func(m *machine, a value.Value) (value.Value, bool) {
	return func(m *machine, a value.Value) (value.Value, bool) {
		if a.Kind() != value.ArrayKind && a.Kind() != value.SetKind {
			return value.Value{}, false
		}
		for _, e := range a.Elems() {
			if e.Kind() != value.NumberKind {
				return value.Value{}, false
			}
		}
		if m.work(8 * a.Len()) {
			return value.Value{}, true
		}
		acc := big.NewInt(start)
		for i, e := range a.Elems() {
			x, ok := bigInt(e)
			if !ok {
				return m.totalFloat(start, a.Elems(), rounded), true
			}
			// An exact integer of any length would cost in the square of them.
			if acc = exact(acc, acc, x); acc.BitLen() > maxBits {
				m.fail(ErrLimit)
			}
			if m.err != nil || i&1023 == 0 && m.tick() {
				return value.Value{}, true
			}
		}
		return m.number(acc.String()), true
	}
}

// maxBits is more than any number of the range has.
const maxBits = 1100

func (m *machine) totalFloat(start int64, elems []value.Value, op func(z, x, y *big.Float) *big.Float) value.Value {
	acc := new(big.Float)
	if start != 0 {
		acc = big.NewFloat(float64(start))
	}
	for _, e := range elems {
		x, ok := new(big.Float).SetString(e.NumberText())
		if !ok || m.tick() {
			return value.Value{}
		}
		acc = op(acc, acc, x)
		if exp := acc.MantExp(nil); exp > maxBits || exp < -2*maxBits {
			m.fail(ErrLimit)
			return value.Value{}
		}
	}
	format := byte('g')
	if acc.IsInt() {
		format = 'f'
	}
	text := acc.Text(format, -1)
	if v, err := value.Number(text); err == nil {
		return v
	}
	if f, _ := acc.Float64(); f != 0 { // a long integer: still a double
		if v := value.Float(f); !v.IsNull() {
			return v
		}
	}
	m.fail(ErrLimit)
	return value.Value{}
}

// bigInt is the integer that a number is, also one written as 1e3 or 1.0.
func bigInt(v value.Value) (*big.Int, bool) {
	if v.IsInt() {
		i, _ := v.Int64()
		return big.NewInt(i), true
	}
	if i, ok := new(big.Int).SetString(v.NumberText(), 10); ok {
		return i, true
	}
	r, ok := new(big.Rat).SetString(v.NumberText())
	if !ok || !r.IsInt() {
		return nil, false
	}
	return new(big.Int).Set(r.Num()), true
}

func numbersRange(m *machine, a, b value.Value) (value.Value, bool) {
	return m.numbersFrom(a, b, value.Int(1))
}

func numbersRangeStep(m *machine, a, b, step value.Value) (value.Value, bool) {
	return m.numbersFrom(a, b, step)
}

func (m *machine) numbersFrom(a, b, by value.Value) (value.Value, bool) {
	if a.Kind() != value.NumberKind || b.Kind() != value.NumberKind || by.Kind() != value.NumberKind {
		return value.Value{}, false
	}
	x, ok1 := bigInt(a)
	y, ok2 := bigInt(b)
	step, ok3 := bigInt(by)
	if !ok1 || !ok2 || !ok3 || step.Sign() <= 0 {
		return value.Value{}, false
	}
	if x.Cmp(y) > 0 {
		step.Neg(step)
	}
	n := new(big.Int).Quo(new(big.Int).Sub(y, x), step)
	if n.BitLen() > 22 || !m.alloc(valueBytes*int(n.Int64()+1)) || m.work(int(n.Int64()+1)) {
		m.fail(ErrLimit)
		return value.Value{}, true
	}
	out := make([]value.Value, n.Int64()+1)
	small := x.IsInt64() && y.IsInt64() && step.IsInt64()
	for i := range out {
		if small {
			out[i] = value.Int(x.Int64() + int64(i)*step.Int64())
			continue
		}
		if i > 0 {
			x.Add(x, step)
		}
		if out[i] = m.number(x.String()); m.err != nil || m.tick() {
			return value.Value{}, true
		}
	}
	return m.made(value.Array(out...)), true
}

// shift is bits.lsh or bits.rsh.
func shift(op func(z, x *big.Int, n uint) *big.Int) func(m *machine, a, b value.Value) (value.Value, bool) {
	return func(m *machine, a, b value.Value) (value.Value, bool) {
		if a.Kind() != value.NumberKind || b.Kind() != value.NumberKind {
			return value.Value{}, false
		}
		x, ok1 := bigInt(a)
		n, ok2 := bigInt(b)
		if !ok1 || !ok2 || n.Sign() < 0 {
			return value.Value{}, false
		}
		if !n.IsInt64() || n.Int64() > maxBits {
			m.fail(ErrLimit)
			return value.Value{}, true
		}
		return m.number(op(new(big.Int), x, uint(n.Int64())).String()), true
	}
}

// toNumber is to_number. Texts that are no numbers are errors, and OPA's to tell.
func toNumber(m *machine, a value.Value) (value.Value, bool) {
	switch a.Kind() {
	case value.NumberKind:
		return a, true
	case value.NullKind:
		return value.Int(0), true
	case value.BoolKind:
		if a.True() {
			return value.Int(1), true
		}
		return value.Int(0), true
	}
	s, ok := a.Str()
	if !ok {
		return value.Value{}, false
	}
	if len(s) > maxBits+maxBits || m.work(len(s)>>4) {
		m.fail(ErrLimit)
		return value.Value{}, true
	}
	v, err := value.Number(s)
	if err == nil {
		return v, true
	}
	if !errors.Is(err, value.ErrRange) {
		f, perr := strconv.ParseFloat(s, 64)
		if perr != nil && !errors.Is(perr, strconv.ErrRange) || strings.ContainsAny(s, "nNiI") {
			return value.Value{}, false
		}
		// A number in another spelling: +1, .5, 007.
		if v, err = value.Number(plainNumber(s)); err == nil {
			return v, true
		}
		if v = value.Float(f); perr == nil && f != 0 && !v.IsNull() {
			return v, true
		}
	}
	m.fail(ErrLimit)
	return value.Value{}, true
}

// plainNumber is a number in JSON's spelling, if it is decimal.
func plainNumber(s string) string {
	s = strings.TrimPrefix(s, "+")
	sign := ""
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		sign, s = "-", rest
	}
	mant, exp := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mant, exp = s[:i], s[i:]
	}
	whole, frac, _ := strings.Cut(mant, ".")
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	if frac != "" {
		frac = "." + frac
	}
	return sign + whole + frac + exp
}

// parseUnits holds the number in the text of units.parse and units.parse_bytes
// to the range, before OPA's implementation reckons with it.
func parseUnits(m *machine, a value.Value) (value.Value, bool) {
	s, ok := a.Str()
	if !ok {
		return value.Value{}, false
	}
	if m.work(len(s) >> 2) {
		return value.Value{}, true
	}
	s = strings.TrimLeft(strings.ReplaceAll(s, `"`, ""), "+")
	end := strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune("0123456789.+-eE", r) })
	if end >= 0 {
		s = s[:end]
	}
	for _, text := range []string{s, strings.TrimRight(s, "eE")} {
		if len(text) > maxBits {
			m.fail(ErrLimit)
		} else if _, err := value.Number(plainNumber(text)); errors.Is(err, value.ErrRange) {
			m.fail(ErrLimit)
		}
	}
	return value.Value{}, m.err != nil
}

// random is rand.intn: one number for a text and a bound in an evaluation.
func random(m *machine, a, b value.Value) (value.Value, bool) {
	text, ok1 := a.Str()
	n, ok2 := b.Integer()
	if !ok1 || !ok2 || n == math.MinInt64 {
		return value.Value{}, false
	}
	if n == 0 {
		return value.Int(0), true
	}
	n = max(n, -n)
	return m.chance("rand.intn "+text+" "+strconv.FormatInt(n, 10), func() value.Value { return value.Int(rand.Int64N(n)) }), true
}

// uuid4 is uuid.rfc4122: one identifier for a text in an evaluation.
func uuid4(m *machine, a value.Value) (value.Value, bool) {
	text, ok := a.Str()
	if !ok {
		return value.Value{}, false
	}
	return m.chance("uuid "+text, func() value.Value { return value.String(uuid.NewString()) }), true
}

// chance gives for a name what was drawn for it first.
func (m *machine) chance(name string, draw func() value.Value) value.Value {
	if v, ok := m.drawn[name]; ok {
		return v
	}
	if !m.alloc(len(name)+128) || m.work(64) {
		return value.Value{}
	}
	if m.drawn == nil {
		m.drawn = map[string]value.Value{}
	}
	v := draw()
	m.drawn[name] = v
	return v
}

// numbersInRange looks for numbers outside of the range in a YAML text: its
// reader would make infinity or zero of them.
func numbersInRange(m *machine, a value.Value) (value.Value, bool) {
	s, ok := a.Str()
	if !ok || m.work(len(s)>>2) {
		return value.Value{}, m.err != nil
	}
	for _, field := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]{}:", r) }) {
		if len(field) < 4 || strings.IndexByte("+-.0123456789", field[0]) < 0 {
			continue
		}
		if _, err := value.Number(plainNumber(field)); errors.Is(err, value.ErrRange) {
			m.fail(ErrLimit)
			break
		}
	}
	return value.Value{}, m.err != nil
}
