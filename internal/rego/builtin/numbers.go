package builtin

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// These built-ins make numbers. All numbers of an evaluation are within the range of value.Number,
// so that each arithmetic operation takes a bounded time. A number outside the range stops the
// evaluation.

// number converts the text of a result. A number outside the range fails with ErrLimit.
func (m *Memory) number(text string) value.Value {
	v, err := value.Number(text)
	if err != nil {
		m.Fail(eval.ErrLimit)
		return value.Value{}
	}
	return v
}

func total(start int64, exact func(z, x, y *big.Int) *big.Int, rounded func(z, x, y *big.Float) *big.Float) func(m *Memory, a value.Value) (value.Value, bool) {
	return func(m *Memory, a value.Value) (value.Value, bool) {
		if a.Kind() != value.ArrayKind && a.Kind() != value.SetKind {
			return value.Value{}, false
		}
		for _, e := range a.Elems() {
			if e.Kind() != value.NumberKind {
				return value.Value{}, false
			}
		}
		if m.Work(8 * a.Len()) {
			return value.Value{}, true
		}
		acc := big.NewInt(start)
		for i, e := range a.Elems() {
			x, ok := bigInt(e)
			if !ok {
				return m.totalFloat(start, a.Elems(), rounded), true
			}
			// The time to add up exact integers of unlimited length would be quadratic.
			if acc = exact(acc, acc, x); acc.BitLen() > MaxBits {
				m.Fail(eval.ErrLimit)
			}
			if m.Err != nil || i&1023 == 0 && m.Tick() {
				return value.Value{}, true
			}
		}
		return m.number(acc.String()), true
	}
}

// MaxBits is more than the bits of any number in the range.
const MaxBits = 1100

func (m *Memory) totalFloat(start int64, elems []value.Value, op func(z, x, y *big.Float) *big.Float) value.Value {
	acc := new(big.Float)
	if start != 0 {
		acc = big.NewFloat(float64(start))
	}
	for _, e := range elems {
		x, ok := new(big.Float).SetString(e.NumberText())
		if !ok || m.Tick() {
			return value.Value{}
		}
		acc = op(acc, acc, x)
		if exp := acc.MantExp(nil); exp > MaxBits || exp < -2*MaxBits {
			m.Fail(eval.ErrLimit)
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
	if f, _ := acc.Float64(); f != 0 { // a long integer becomes a double
		if v := value.Float(f); !v.IsNull() {
			return v
		}
	}
	m.Fail(eval.ErrLimit)
	return value.Value{}
}

// bigInt returns the integer that a number equals, also for spellings such as 1e3 or 1.0.
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

func numbersRange(m *Memory, a, b value.Value) (value.Value, bool) {
	return m.numbersFrom(a, b, value.Int(1))
}

func (m *Memory) numbersFrom(a, b, by value.Value) (value.Value, bool) {
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
	if n.BitLen() > 22 || !m.Alloc(eval.ValueBytes*int(n.Int64()+1)) || m.Work(int(n.Int64()+1)) {
		m.Fail(eval.ErrLimit)
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
		if out[i] = m.number(x.String()); m.Err != nil || m.Tick() {
			return value.Value{}, true
		}
	}
	return m.CheckSize(value.Array(out...)), true
}

func shift(op func(z, x *big.Int, n uint) *big.Int) func(m *Memory, a, b value.Value) (value.Value, bool) {
	return func(m *Memory, a, b value.Value) (value.Value, bool) {
		if a.Kind() != value.NumberKind || b.Kind() != value.NumberKind {
			return value.Value{}, false
		}
		x, ok1 := bigInt(a)
		n, ok2 := bigInt(b)
		if !ok1 || !ok2 || n.Sign() < 0 {
			return value.Value{}, false
		}
		if !n.IsInt64() || n.Int64() > MaxBits {
			m.Fail(eval.ErrLimit)
			return value.Value{}, true
		}
		return m.number(op(new(big.Int), x, uint(n.Int64())).String()), true
	}
}

// toNumber implements to_number. OPA's implementation reports texts that are not numbers.
func toNumber(m *Memory, a value.Value) (value.Value, bool) {
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
	if len(s) > MaxBits+MaxBits || m.Work(len(s)>>4) {
		m.Fail(eval.ErrLimit)
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
		// A number in a spelling that JSON does not have: +1, .5, 007.
		if v, err = value.Number(plainNumber(s)); err == nil {
			return v, true
		}
		if v = value.Float(f); perr == nil && f != 0 && !v.IsNull() {
			return v, true
		}
	}
	m.Fail(eval.ErrLimit)
	return value.Value{}, true
}

// OutOfRange reports whether a decimal number, in any spelling, is outside the range of
// value.Number. It is false for texts that are not numbers.
func OutOfRange(text string) bool {
	_, err := value.Number(plainNumber(text))
	return errors.Is(err, value.ErrRange)
}

// plainNumber rewrites a decimal number in the spelling of JSON.
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

// parseUnits checks the range of the number in the text of units.parse and units.parse_bytes,
// before OPA's implementation calculates with it.
func parseUnits(m *Memory, a value.Value) (value.Value, bool) {
	s, ok := a.Str()
	if !ok {
		return value.Value{}, false
	}
	if m.Work(len(s) >> 2) {
		return value.Value{}, true
	}
	s = strings.TrimLeft(strings.ReplaceAll(s, `"`, ""), "+")
	end := strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune("0123456789.+-eE", r) })
	if end >= 0 {
		s = s[:end]
	}
	for _, text := range []string{s, strings.TrimRight(s, "eE")} {
		if len(text) > MaxBits {
			m.Fail(eval.ErrLimit)
		} else if OutOfRange(text) {
			m.Fail(eval.ErrLimit)
		}
	}
	return value.Value{}, m.Err != nil
}

// random implements rand.intn: within an evaluation, the same arguments give the same number.
func random(m *Memory, a, b value.Value) (value.Value, bool) {
	text, ok1 := a.Str()
	n, ok2 := b.Integer()
	if !ok1 || !ok2 || n == math.MinInt64 {
		return value.Value{}, false
	}
	if n == 0 {
		return value.Int(0), true
	}
	n = max(n, -n)
	return m.drawOnce("rand.intn "+text+" "+strconv.FormatInt(n, 10), func() value.Value { return value.Int(rand.Int64N(n)) }), true
}

// uuid4 implements uuid.rfc4122: within an evaluation, the same text gives the same identifier.
func uuid4(m *Memory, a value.Value) (value.Value, bool) {
	text, ok := a.Str()
	if !ok {
		return value.Value{}, false
	}
	return m.drawOnce("uuid "+text, func() value.Value { return value.String(uuid.NewString()) }), true
}

// drawOnce returns the value drawn for a name. It calls draw at the first request only.
func (m *Memory) drawOnce(name string, draw func() value.Value) value.Value {
	if v, ok := m.drawn[name]; ok {
		return v
	}
	if !m.Alloc(len(name)+128) || m.Work(64) {
		return value.Value{}
	}
	if m.drawn == nil {
		m.drawn = map[string]value.Value{}
	}
	v := draw()
	m.drawn[name] = v
	return v
}

// numbersInRange fails if a YAML text contains a number outside the range: the YAML parser would
// turn it into infinity or zero.
func numbersInRange(m *Memory, a value.Value) (value.Value, bool) {
	s, ok := a.Str()
	if !ok || m.Work(len(s)>>2) {
		return value.Value{}, m.Err != nil
	}
	for _, field := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]{}:", r) }) {
		if len(field) < 4 || strings.IndexByte("+-.0123456789", field[0]) < 0 {
			continue
		}
		if OutOfRange(field) {
			m.Fail(eval.ErrLimit)
			break
		}
	}
	return value.Value{}, m.Err != nil
}
