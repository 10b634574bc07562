package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is the kind of a change of the contract.
type Kind string

// The kinds of changes that break clients. Narrower is a stricter limit on what clients
// may send.
const (
	OperationRemoved  Kind = "operation_removed"
	IDChanged         Kind = "id_changed"
	ParameterRemoved  Kind = "parameter_removed"
	ParameterRequired Kind = "parameter_required"
	BodyRemoved       Kind = "body_removed"
	StatusRemoved     Kind = "status_removed"
	SchemaRemoved     Kind = "schema_removed"
	MemberRemoved     Kind = "member_removed"
	MemberRequired    Kind = "member_required"
	MemberOptional    Kind = "member_optional"
	Narrower          Kind = "narrower"
	TypeChanged       Kind = "type_changed"
	ValueRemoved      Kind = "value_removed"
	ValuesClosed      Kind = "values_closed"
)

// The kinds of changes that do not break clients.
const (
	OperationAdded Kind = "operation_added"
	ParameterAdded Kind = "parameter_added"
	MemberAdded    Kind = "member_added"
	ValueAdded     Kind = "value_added"
)

// Kinds lists all kinds. Those that break clients come first.
var Kinds = []Kind{
	OperationRemoved, IDChanged, ParameterRemoved, ParameterRequired, BodyRemoved, StatusRemoved, SchemaRemoved, MemberRemoved,
	MemberRequired, MemberOptional, Narrower, TypeChanged, ValueRemoved, ValuesClosed,
	OperationAdded, ParameterAdded, MemberAdded, ValueAdded,
}

// Breaking reports whether a client of the earlier version may fail.
func (k Kind) Breaking() bool { return slices.Index(Kinds, k) < slices.Index(Kinds, OperationAdded) }

// Change is one difference between two versions.
type Change struct {
	// Where is an operation (method and path) or the name of a shared schema, and
	// perhaps a member below it.
	Where string
	Kind  Kind
	// What names the parameter, member, status, value or limit that changed. From and
	// To are the old and the new type, limit or operation id.
	What, From, To string
}

// String returns the change as one line, for messages of tests.
func (c Change) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", c.Where, c.Kind, c.What, strings.Trim(c.From+" → "+c.To, " →")))
}

// Compare lists the changes from the document was to the document is, sorted by their
// place: removed and added operations, parameters, members and statuses; narrower types
// in requests, and wider types in answers; changed enums; new required parameters and
// members. A new value in answers does not break clients: the deprecation policy says
// that they must expect it.
func Compare(was, is Document) []Change {
	c := comparison{was: was, is: is, seen: map[string]bool{}}
	old, _ := was["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(old)) {
		ops, _ := old[path].(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(ops)) {
			where := strings.ToUpper(method) + " " + path
			now := lookup(is, "paths", path, method)
			if now == nil {
				c.add(Change{Where: where, Kind: OperationRemoved})
				continue
			}
			c.operation(where, ops[method], now)
		}
	}
	paths, _ := is["paths"].(map[string]any)
	for path, item := range paths {
		ops, _ := item.(map[string]any)
		for method := range ops {
			if lookup(was, "paths", path, method) == nil {
				c.add(Change{Where: strings.ToUpper(method) + " " + path, Kind: OperationAdded})
			}
		}
	}
	slices.SortFunc(c.found, func(a, b Change) int { return strings.Compare(a.key(), b.key()) })
	return slices.Compact(c.found)
}

func (c Change) key() string {
	return c.Where + "\x00" + string(c.Kind) + "\x00" + c.What + "\x00" + c.From + "\x00" + c.To
}

type comparison struct {
	was, is Document
	seen    map[string]bool // pairs of references that are already compared
	found   []Change
}

func (c *comparison) add(change Change) { c.found = append(c.found, change) }

func (c *comparison) operation(where string, was, is any) {
	if a, b := lookup(was, "operationId"), lookup(is, "operationId"); a != b {
		c.add(Change{Where: where, Kind: IDChanged, From: fmt.Sprint(a), To: fmt.Sprint(b)})
	}
	c.parameters(where, byName(lookup(was, "parameters")), byName(lookup(is, "parameters")))
	content := []string{"requestBody", "content", "application/json", "schema"}
	c.schema(where+" body", lookup(was, content...), lookup(is, content...), true)
	if lookup(was, "requestBody") != nil && lookup(is, "requestBody") == nil {
		c.add(Change{Where: where, Kind: BodyRemoved})
	}
	responses, _ := lookup(was, "responses").(map[string]any)
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		now := lookup(is, "responses", status)
		if now == nil {
			if status[0] == '2' {
				c.add(Change{Where: where, Kind: StatusRemoved, What: status})
			}
			continue
		}
		c.schema(where+" "+status, lookup(responses[status], "content", "application/json", "schema"), lookup(now, "content", "application/json", "schema"), false)
	}
}

func (c *comparison) parameters(where string, old, now map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if now[name] == nil {
			c.add(Change{Where: where, Kind: ParameterRemoved, What: name})
			continue
		}
		c.schema(where+" "+name, lookup(old[name], "schema"), lookup(now[name], "schema"), true)
	}
	for name, p := range now {
		switch {
		case lookup(p, "required") == true && (old[name] == nil || lookup(old[name], "required") != true):
			c.add(Change{Where: where, Kind: ParameterRequired, What: name})
		case old[name] == nil:
			c.add(Change{Where: where, Kind: ParameterAdded, What: name})
		}
	}
}

func byName(list any) map[string]any {
	out := map[string]any{}
	items, _ := list.([]any)
	for _, p := range items {
		if ref, ok := lookup(p, "$ref").(string); ok {
			out[ref[strings.LastIndexByte(ref, '/')+1:]] = p
			continue
		}
		out[fmt.Sprintf("%v %v", lookup(p, "in"), lookup(p, "name"))] = p
	}
	return out
}
