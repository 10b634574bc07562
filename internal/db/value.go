package db

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	jsonEncoder  = reflect.TypeFor[json.Marshaler]()
	textEncoder  = reflect.TypeFor[encoding.TextMarshaler]()
	textDecoder  = reflect.TypeFor[encoding.TextUnmarshaler]()
	errBadText   = errors.New("text with NUL or broken UTF-8")
	emptyMembers = map[reflect.Kind]string{reflect.Slice: "[]", reflect.Map: "{}"}
)

// value converts an argument to nil, int64, float64, bool, string or []byte. Times become
// microseconds; structs, maps and slices become JSON or their own text form.
func value(a any) (any, error) {
	switch v := a.(type) {
	case nil, int64, float64, bool:
		return v, nil
	case string:
		return text(v)
	case int:
		return int64(v), nil
	case []byte:
		if v == nil {
			return []byte{}, nil
		}
		return v, nil
	case time.Time:
		return micros(v), nil
	case json.RawMessage:
		if len(v) == 0 {
			return "null", nil
		}
		return text(string(v))
	}
	return valueOf(reflect.ValueOf(a))
}

func valueOf(v reflect.Value) (any, error) {
	t := v.Type()
	switch t.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, nil
		}
		return value(v.Elem().Interface())
	case reflect.String:
		return text(v.String())
	case reflect.Bool:
		return v.Bool(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if v.Uint() > math.MaxInt64 {
			return nil, fmt.Errorf("%d does not fit a database integer", v.Uint())
		}
		return int64(v.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return v.Float(), nil
	}
	if asText(t) {
		b, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		return string(b), err
	}
	if empty, ok := emptyMembers[t.Kind()]; ok && v.IsNil() {
		return empty, nil
	}
	b, err := json.Marshal(v.Interface())
	return string(b), err
}

// asText reports whether a composite type is stored in its own text form, like UUIDs and IP
// addresses.
func asText(t reflect.Type) bool {
	return t.Implements(textEncoder) && !t.Implements(jsonEncoder) && reflect.PointerTo(t).Implements(textDecoder)
}

// text refuses texts that PostgreSQL cannot store, so that both backends behave the same.
func text(s string) (any, error) {
	if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
		return nil, badText(errBadText)
	}
	return s, nil
}

// ClockSkew is how far the clocks of replicas may differ, or a clock may be set back, without a
// correction of what is stored.
const ClockSkew = 15 * time.Minute

// MaxLeaseEnd returns the latest end of a lease of a length. A lease that ends later was granted before
// a clock was set back by more than ClockSkew. It counts as expired, because its holder may be gone.
func MaxLeaseEnd(now time.Time, length time.Duration) time.Time { return now.Add(length + ClockSkew) }

// Stamp returns t as a store returns it: in UTC, truncated to the microsecond. Use it for a time
// that is both stored and returned, so that the answer to a change and a later read have the same
// time.
func Stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// micros returns a time as it is stored: microseconds since 1970 (UTC); 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// setter writes one column's value into a field.
type setter func(dst reflect.Value, src any) error

// setterOf chooses the setter for fields of type t.
func setterOf(t reflect.Type) setter {
	switch {
	case t == timeType:
		return setTime
	case t == rawType:
		return setRaw
	}
	switch t.Kind() {
	case reflect.Pointer:
		inner := setterOf(t.Elem())
		return func(dst reflect.Value, src any) error {
			if src == nil {
				dst.SetZero()
				return nil
			}
			dst.Set(reflect.New(t.Elem()))
			return inner(dst.Elem(), src)
		}
	case reflect.String:
		return setString
	case reflect.Bool:
		return setBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return setInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return setUint
	case reflect.Float32, reflect.Float64:
		return setFloat
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return setBytes
		}
	}
	if asText(t) {
		return setText
	}
	return setJSON
}

func mismatch(dst reflect.Value, src any) error {
	if src == nil {
		return fmt.Errorf("NULL does not fit %s", dst.Type())
	}
	return fmt.Errorf("%T does not fit %s", src, dst.Type())
}

func setString(dst reflect.Value, src any) error {
	switch s := src.(type) {
	case string:
		dst.SetString(s)
	case []byte:
		dst.SetString(string(s))
	default:
		return mismatch(dst, src)
	}
	return nil
}

func setBool(dst reflect.Value, src any) error {
	switch b := src.(type) {
	case bool:
		dst.SetBool(b)
	case int64:
		dst.SetBool(b != 0)
	default:
		return mismatch(dst, src)
	}
	return nil
}

// integer converts the drivers' forms of whole numbers. PostgreSQL returns sums as numeric, and
// SQLite returns booleans as integers.
func integer(dst reflect.Value, src any) (int64, error) {
	switch n := src.(type) {
	case int64:
		return n, nil
	case int32:
		return int64(n), nil
	case int16:
		return int64(n), nil
	case bool:
		if n {
			return 1, nil
		}
		return 0, nil
	case float64:
		if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			return int64(n), nil
		}
	case pgtype.Numeric:
		if v, err := n.Int64Value(); err == nil && v.Valid {
			return v.Int64, nil
		}
	}
	return 0, mismatch(dst, src)
}

func setInt(dst reflect.Value, src any) error {
	n, err := integer(dst, src)
	if err != nil {
		return err
	}
	if dst.OverflowInt(n) {
		return fmt.Errorf("%d does not fit %s", n, dst.Type())
	}
	dst.SetInt(n)
	return nil
}

func setUint(dst reflect.Value, src any) error {
	n, err := integer(dst, src)
	if err != nil {
		return err
	}
	if n < 0 || dst.OverflowUint(uint64(n)) {
		return fmt.Errorf("%d does not fit %s", n, dst.Type())
	}
	dst.SetUint(uint64(n))
	return nil
}

func setFloat(dst reflect.Value, src any) error {
	switch n := src.(type) {
	case float64:
		dst.SetFloat(n)
		return nil
	case float32:
		dst.SetFloat(float64(n))
		return nil
	case pgtype.Numeric:
		if v, err := n.Float64Value(); err == nil && v.Valid {
			dst.SetFloat(v.Float64)
			return nil
		}
	}
	n, err := integer(dst, src)
	dst.SetFloat(float64(n))
	return err
}

func setTime(dst reflect.Value, src any) error {
	n, err := integer(dst, src)
	if err != nil {
		return err
	}
	t := time.Time{}
	if n != 0 {
		t = time.UnixMicro(n).UTC()
	}
	*dst.Addr().Interface().(*time.Time) = t
	return nil
}

func setBytes(dst reflect.Value, src any) error {
	switch b := src.(type) {
	case []byte:
		dst.SetBytes(append([]byte{}, b...))
	case string:
		dst.SetBytes([]byte(b))
	default:
		return mismatch(dst, src)
	}
	return nil
}

// members returns a value that is stored as text: JSON, or its own text form.
func members(dst reflect.Value, src any) ([]byte, error) {
	switch s := src.(type) {
	case string:
		return []byte(s), nil
	case []byte:
		return s, nil
	}
	return nil, mismatch(dst, src)
}

func setRaw(dst reflect.Value, src any) error {
	b, err := members(dst, src)
	if err == nil {
		dst.SetBytes(append([]byte{}, b...))
	}
	return err
}

func setText(dst reflect.Value, src any) error {
	b, err := members(dst, src)
	if err != nil {
		return err
	}
	return dst.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(b)
}

func setJSON(dst reflect.Value, src any) error {
	b, err := members(dst, src)
	if err != nil {
		return err
	}
	dst.SetZero()
	return json.Unmarshal(b, dst.Addr().Interface())
}
