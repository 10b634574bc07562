// Package schema checks the values of requests against the schemas of the API document. huma makes
// the schemas and checks scalars. This package checks objects and arrays, because of JSON pointers,
// unknown members, and members that answers have but requests ignore.
package schema

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// MaxDetails is the largest number of offences in one answer.
const MaxDetails = 100

// Checker checks values against the schemas of one document. It is safe for
// concurrent use once the document is complete.
type Checker struct {
	// Registry resolves references between schemas.
	Registry huma.Registry
	// Names lists the members that are names for people, at every depth.
	Names []string
}

// Body describes how to check a body.
type Body struct {
	// Schema is the schema of the request.
	Schema *huma.Schema
	// Record is the schema of the answer to the same operation; nil: there is none. A client may
	// send back what it has read, so these members are accepted.
	Record *huma.Schema
	// Lenient ignores unknown members, which foreign protocols need.
	Lenient bool
	// Type is the Go type of the body. It may be an offender.
	Type reflect.Type
}

// Check returns doc without its read-only members, and its offences: at most MaxDetails, each with
// a JSON pointer.
func (c *Checker) Check(b Body, doc value.Value) (value.Value, []fault.Detail) {
	run := check{rules: c, lenient: b.Lenient}
	doc = run.value(b.Schema, b.Record, doc)
	if len(run.details) > 0 {
		return doc, run.withOffences(b.Type, doc)
	}
	return doc, nil
}

// check is one validation.
type check struct {
	rules   *Checker
	lenient bool
	path    []string
	details []fault.Detail
	// stripped is true if a read-only member was removed from the document.
	stripped bool
}

func (c *check) add(message string) {
	if len(c.details) < MaxDetails {
		c.details = append(c.details, fault.Detail{Pointer: Pointer(c.path), Message: message})
	}
}

func (c *check) in(step string, f func()) {
	c.path = append(c.path, step)
	f()
	c.path = c.path[:len(c.path)-1]
}

// Pointer renders a path as a JSON pointer (RFC 6901).
func Pointer(path []string) string {
	var b strings.Builder
	for _, step := range path {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(step, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// deref resolves references.
func (c *Checker) deref(s *huma.Schema) *huma.Schema {
	for s != nil && s.Ref != "" {
		s = c.Registry.SchemaFromRef(s.Ref)
	}
	return s
}

// nullable reports whether s, or the schema that it refers to, accepts null.
func (c *Checker) nullable(s *huma.Schema) bool {
	if s == nil {
		return false
	}
	return s.Nullable || s.Ref != "" && c.nullable(c.deref(s))
}

// value checks doc against s and returns it without read-only members. record is the schema of the
// answer at the same place; nil: there is none.
func (c *check) value(s, record *huma.Schema, doc value.Value) value.Value {
	if doc.IsNull() && c.rules.nullable(s) {
		return doc
	}
	s, record = c.rules.deref(s), c.rules.deref(record)
	if s == nil {
		return doc
	}
	c.combined(s, doc)
	switch s.Type {
	case "":
		return doc
	case huma.TypeObject:
		if doc.Kind() != value.ObjectKind {
			c.add("expected an object")
			return doc
		}
		return c.object(s, record, doc)
	case huma.TypeArray:
		if doc.Kind() != value.ArrayKind {
			c.add("expected an array")
			return doc
		}
		return c.array(s, record, doc)
	default:
		c.scalar(s, doc)
		return doc
	}
}

func (c *check) array(s, record *huma.Schema, doc value.Value) value.Value {
	items := doc.Elems()
	if s.MinItems != nil && len(items) < *s.MinItems {
		c.add("expected at least " + strconv.Itoa(*s.MinItems) + " items")
	}
	if s.MaxItems != nil && len(items) > *s.MaxItems {
		c.add("expected at most " + strconv.Itoa(*s.MaxItems) + " items")
		return doc
	}
	if s.UniqueItems && value.SetOf(slices.Clone(items)).Len() != len(items) {
		c.add("expected distinct items")
	}
	if s.Items == nil {
		return doc
	}
	var inner *huma.Schema
	if record != nil {
		inner = record.Items
	}
	stripped := c.stripped
	c.stripped = false
	kept := make([]value.Value, 0, len(items))
	for i, item := range items {
		if len(c.details) >= MaxDetails {
			return doc
		}
		c.in(strconv.Itoa(i), func() { kept = append(kept, c.value(s.Items, inner, item)) })
	}
	if c.stripped {
		doc = value.Array(kept...)
	}
	c.stripped = c.stripped || stripped
	return doc
}

func (c *check) object(s, record *huma.Schema, doc value.Value) value.Value {
	for _, name := range s.Required {
		if !doc.Get(name).Defined() && (s.Properties[name] == nil || !s.Properties[name].ReadOnly) {
			c.in(name, func() { c.add("this member is required") })
		}
	}
	if s.MinProperties != nil && doc.Len() < *s.MinProperties {
		c.add("expected at least " + strconv.Itoa(*s.MinProperties) + " members")
	}
	if s.MaxProperties != nil && doc.Len() > *s.MaxProperties {
		c.add("expected at most " + strconv.Itoa(*s.MaxProperties) + " members")
	}
	stripped := c.stripped
	c.stripped = false
	var kept []value.Member
	doc.Each(func(name string, member value.Value) bool {
		c.in(name, func() {
			if member, keep := c.member(s, record, name, member); keep {
				kept = append(kept, value.Member{Key: name, Value: member})
			}
		})
		return len(c.details) < MaxDetails
	})
	if c.stripped {
		doc = value.Object(kept...)
	}
	c.stripped = c.stripped || stripped
	return doc
}

// member checks one member of an object. keep is false if the handler must not receive it.
func (c *check) member(s, record *huma.Schema, name string, doc value.Value) (_ value.Value, keep bool) {
	if prop := s.Properties[name]; prop != nil {
		if prop.ReadOnly {
			c.stripped = true
			return doc, false
		}
		var inner *huma.Schema
		if record != nil {
			inner = record.Properties[name]
		}
		// A client may send back a null that it has received; it changes nothing then. Clients of
		// foreign protocols send null for absent members.
		if doc.IsNull() && (c.lenient || c.rules.nullable(inner)) && !slices.Contains(s.Required, name) {
			return doc, true
		}
		return c.value(prop, inner, doc), true
	}
	switch extra := s.AdditionalProperties.(type) {
	case *huma.Schema:
		return c.value(extra, nil, doc), true
	case bool:
		if extra || c.lenient || record != nil && record.Properties[name] != nil {
			return doc, true
		}
		c.add("there is no such member here")
	}
	return doc, true
}

// offender is a body that can report offences which no schema can express. If its schema finds no
// offences, its use case reports them. If it finds some, they are added here, so that a caller
// learns of all at once.
type offender interface{ Offences() []fault.Detail }

var offenderType = reflect.TypeFor[offender]()

// withOffences adds the offences that a body of type t reports. The body does not receive values
// that its schema refuses; offences at, in or around their places are left out.
func (c *check) withOffences(t reflect.Type, doc value.Value) []fault.Detail {
	if t == nil || !t.Implements(offenderType) || doc.Kind() != value.ObjectKind {
		return c.details
	}
	kept, bad := doc, make([]string, 0, len(c.details))
	for _, d := range c.details {
		bad = append(bad, d.Pointer)
		if kept = without(kept, strings.Split(d.Pointer, "/")[1:]); !kept.Defined() {
			return c.details
		}
	}
	body := reflect.New(t)
	if err := json.Unmarshal(kept.AppendJSON(nil), body.Interface()); err != nil {
		return c.details
	}
	if known, ok := reflect.TypeAssert[offender](body); ok {
		for _, d := range known.Offences() {
			if !overlaps(bad, d.Pointer) && len(c.details) < MaxDetails {
				c.details = append(c.details, d)
			}
		}
	}
	return c.details
}

// without returns doc without the member at the steps of a JSON pointer. A list is removed as a
// whole, because its items have no names. The result is undefined if nothing is left.
func without(doc value.Value, steps []string) value.Value {
	if len(steps) == 0 || doc.Kind() != value.ObjectKind {
		return value.Value{}
	}
	var kept []value.Member
	doc.Each(func(name string, member value.Value) bool {
		if Pointer([]string{name}) == "/"+steps[0] {
			member = without(member, steps[1:])
		}
		if member.Defined() {
			kept = append(kept, value.Member{Key: name, Value: member})
		}
		return true
	})
	return value.Object(kept...)
}

// overlaps reports whether a place is one of the bad ones, inside one or around one.
func overlaps(bad []string, pointer string) bool {
	return slices.ContainsFunc(bad, func(b string) bool {
		return strings.HasPrefix(b+"/", pointer+"/") || strings.HasPrefix(pointer+"/", b+"/")
	})
}

// combined checks oneOf, anyOf and allOf.
func (c *check) combined(s *huma.Schema, doc value.Value) {
	for _, sub := range s.AllOf {
		c.value(sub, nil, doc)
	}
	if len(s.AnyOf) == 0 && len(s.OneOf) == 0 {
		return
	}
	for _, sub := range slices.Concat(s.AnyOf, s.OneOf) {
		probe := check{rules: c.rules, lenient: c.lenient}
		probe.value(sub, nil, doc)
		if len(probe.details) == 0 {
			return
		}
	}
	c.add("this matches none of the allowed forms")
}

// scalar checks strings, numbers and booleans.
func (c *check) scalar(s *huma.Schema, doc value.Value) {
	var scalar any
	switch doc.Kind() {
	case value.ObjectKind, value.ArrayKind:
		c.add(expected(s))
		return
	case value.StringKind:
		scalar, _ = doc.Str()
	case value.BoolKind:
		scalar, _ = doc.Bool()
	case value.NumberKind:
		n, ok := c.number(s, doc)
		if !ok {
			return
		}
		scalar = n
	}
	for _, message := range c.rules.scalar(s, scalar) {
		c.add(message)
	}
}

// number reads a JSON number for schema s.
func (c *check) number(s *huma.Schema, doc value.Value) (any, bool) {
	if s.Type != huma.TypeInteger {
		return doc.Float64()
	}
	i, ok := doc.Int64()
	if !ok || strings.ContainsAny(doc.NumberText(), ".eE") {
		c.add("expected an integer, written without a fraction or exponent")
		return nil, false
	}
	if s.Format == "int32" && (i > math.MaxInt32 || i < math.MinInt32) {
		c.add("this integer is out of range")
		return nil, false
	}
	return i, true
}

// quoting are the prefixes of huma's messages that end with the error of a parser, which quotes its
// input.
var quoting = beginnings(validation.MsgExpectedRFC5322Email, validation.MsgExpectedRFC3986URI, validation.MsgExpectedRFC4122UUID,
	validation.MsgExpectedDuration, validation.MsgExpectedRegexp)

func beginnings(messages ...string) []string {
	for i, m := range messages {
		messages[i], _, _ = strings.Cut(m, "%")
	}
	return messages
}

// expected describes the right type of a value, or lists the allowed values.
func expected(s *huma.Schema) string {
	if len(s.Enum) == 0 {
		return "expected " + s.Type
	}
	allowed := make([]string, len(s.Enum))
	for i, v := range s.Enum {
		allowed[i] = fmt.Sprint(v)
	}
	return fmt.Sprintf(validation.MsgExpectedOneOf, strings.Join(allowed, ", "))
}

// scalar lists the offences of a scalar. The messages never quote it.
func (c *Checker) scalar(s *huma.Schema, doc any) []string {
	text, isText := doc.(string)
	if isText && strings.ContainsRune(text, 0) {
		return []string{"the character U+0000 is not allowed"}
	}
	if isText && s.Format == nameFormat {
		if offence := fault.NameOffence(text); offence != "" {
			return []string{offence}
		}
	}
	if !isText && s.Type == huma.TypeString {
		return []string{expected(s)}
	}
	var res huma.ValidateResult
	pb := huma.NewPathBuffer(nil, 0)
	huma.Validate(c.Registry, s, pb, huma.ModeWriteToServer, doc, &res)
	if len(res.Errors) == 0 {
		return nil
	}
	messages := make([]string, 0, len(res.Errors))
	for _, err := range res.Errors {
		message := "this value is not allowed here"
		if d, ok := err.(huma.ErrorDetailer); ok {
			message = d.ErrorDetail().Message
		}
		if slices.ContainsFunc(quoting, func(begin string) bool { return strings.HasPrefix(message, begin) }) {
			message = "expected a string of the format " + s.Format
		}
		messages = append(messages, message)
	}
	return messages
}
