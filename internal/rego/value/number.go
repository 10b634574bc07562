package value

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"strings"
	"unsafe"
)

// number is a number that is not held as an int64: its exact text in JSON's grammar, and the nearest
// double, which decides most comparisons.
type number struct {
	text string
	f    float64
}

var errNumber = errors.New("not a number")

// ErrRange means that a number is outside the range of numbers, which is the same for all sources of
// numbers: integers of at most MaxDigits digits, and other numbers whose nearest IEEE double is
// neither infinite nor, unless the number is zero, zero.
var ErrRange = errors.New("number outside of the range: a double, or an integer of at most 64 digits")

// The bounds on a number.
const (
	// MaxDigits limits the decimal digits of an integer.
	MaxDigits = 64
	// maxNumberText limits the length of a number's text in bytes: no double needs more.
	maxNumberText = 1100
)

// Float returns a number. Infinities and NaN, which JSON does not have, become null.
func Float(f float64) Value {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return Null()
	}
	if i := int64(f); float64(i) == f && i > -1<<53 && i < 1<<53 {
		return Int(i)
	}
	return boxed(strconv.FormatFloat(f, 'g', -1, 64), f)
}

func boxed(text string, f float64) Value {
	return Value{k: NumberKind, p: unsafe.Pointer(&number{text, f})}
}

// Number returns the exact number of a text in JSON's grammar. It fails with ErrRange if the number
// is outside the range.
func Number(text string) (Value, error) {
	integer, ok := numberShape(text)
	if !ok {
		return Value{}, errNumber
	}
	if integer && text != "-0" {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return Int(i), nil
		}
	}
	f, ok := inRange(text, integer)
	if !ok {
		return Value{}, ErrRange
	}
	return boxed(text, f), nil
}

// inRange returns the double nearest to a number in JSON's grammar, and whether the number is in the
// range. Its time depends only on the length of the text.
func inRange(text string, integer bool) (float64, bool) {
	if len(text) > maxNumberText {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, false
	}
	if integer {
		return f, len(strings.TrimPrefix(text, "-")) <= MaxDigits
	}
	if f == 0 {
		mant, _, _ := strings.Cut(strings.ToLower(text), "e")
		return f, strings.Trim(mant, "-0.") == ""
	}
	return f, true
}

// numberShape reports whether a text is a number in JSON's grammar, and whether it is written as an
// integer.
func numberShape(s string) (integer, ok bool) {
	i := 0
	digits := func() bool {
		from := i
		for i < len(s) && s[i]-'0' <= 9 {
			i++
		}
		return i > from
	}
	if i < len(s) && s[i] == '-' {
		i++
	}
	zero := i < len(s) && s[i] == '0'
	from := i
	if !digits() || zero && i-from > 1 {
		return false, false
	}
	integer = true
	if i < len(s) && s[i] == '.' {
		integer = false
		i++
		if !digits() {
			return false, false
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		integer = false
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if !digits() {
			return false, false
		}
	}
	return integer, i == len(s)
}

// IsInt reports whether v is a number that is held as an int64, which is the common case.
func (v Value) IsInt() bool { return v.k == NumberKind && v.p == nil }

// Int64 returns the integer that v equals; 1, 1.0 and 10e-1 give the same.
func (v Value) Int64() (int64, bool) {
	if v.k != NumberKind {
		return 0, false
	}
	if v.p == nil {
		return int64(v.n), true
	}
	return parseDecimal((*number)(v.p).text).int64()
}

// Integer is Int64 for array indices and the integer operands of built-ins: OPA accepts 1 and 1.0,
// but not 1e0, and no text longer than 19 characters.
func (v Value) Integer() (int64, bool) {
	if v.k == NumberKind && v.p != nil {
		text := strings.TrimPrefix((*number)(v.p).text, "-")
		if len(text) > 19 || strings.ContainsAny(text, "eE") {
			return 0, false
		}
	}
	return v.Int64()
}

// Float64 returns the double nearest to a number.
func (v Value) Float64() (float64, bool) {
	if v.k != NumberKind {
		return 0, false
	}
	if v.p == nil {
		return float64(v.n), true
	}
	return (*number)(v.p).f, true
}

// NumberText returns the exact text of a number; "" if v is not a number.
func (v Value) NumberText() string {
	if v.k != NumberKind {
		return ""
	}
	if v.p == nil {
		return strconv.Itoa(v.n)
	}
	return (*number)(v.p).text
}

func compareNumbers(a, b Value) int {
	if a.p == nil && b.p == nil {
		return cmp.Compare(a.n, b.n)
	}
	fa, _ := a.Float64()
	fb, _ := b.Float64()
	if fa != fb {
		return cmp.Compare(fa, fb)
	}
	ta, tb := a.NumberText(), b.NumberText()
	if ta == tb {
		return 0
	}
	return parseDecimal(ta).compare(parseDecimal(tb))
}

// decimal is the canonical form of a number: ±0.digits × 10^exp, without zeros at either end of
// digits. Zero has no digits. Equal numbers have equal forms, whatever their spelling, and a large
// exponent costs nothing.
type decimal struct {
	neg    bool
	digits string
	exp    int64
}

const maxExp = 1 << 40

func parseDecimal(text string) decimal {
	var d decimal
	if strings.HasPrefix(text, "-") {
		d.neg, text = true, text[1:]
	}
	mant := text
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mant = text[:i]
		e, err := strconv.ParseInt(text[i+1:], 10, 64)
		if err != nil || e > maxExp || e < -maxExp {
			e = maxExp
			if strings.HasPrefix(text[i+1:], "-") {
				e = -maxExp
			}
		}
		d.exp = e
	}
	whole, frac, _ := strings.Cut(mant, ".")
	d.exp += int64(len(whole))
	all := whole
	if frac != "" {
		all = whole + frac
	}
	trimmed := strings.TrimLeft(all, "0")
	d.exp -= int64(len(all) - len(trimmed))
	d.digits = strings.TrimRight(trimmed, "0")
	if d.digits == "" {
		return decimal{}
	}
	return d
}

func (d decimal) int64() (int64, bool) {
	if d.digits == "" {
		return 0, true
	}
	if d.exp < int64(len(d.digits)) || d.exp > 19 {
		return 0, false
	}
	s := d.digits + "0000000000000000000"[:int(d.exp)-len(d.digits)]
	if d.neg {
		s = "-" + s
	}
	i, err := strconv.ParseInt(s, 10, 64)
	return i, err == nil
}

func (d decimal) compare(o decimal) int {
	switch {
	case d.digits == "" && o.digits == "":
		return 0
	case d.digits == "":
		return -o.sign()
	case o.digits == "" || d.neg != o.neg:
		return d.sign()
	}
	c := cmp.Compare(d.exp, o.exp)
	if c == 0 {
		c = strings.Compare(d.digits, o.digits)
	}
	return c * d.sign()
}

func (d decimal) sign() int {
	if d.neg {
		return -1
	}
	return 1
}

func (d decimal) append(dst []byte) []byte {
	if d.neg {
		dst = append(dst, '-')
	}
	dst = append(dst, d.digits...)
	dst = append(dst, 'e')
	return strconv.AppendInt(dst, d.exp, 10)
}
