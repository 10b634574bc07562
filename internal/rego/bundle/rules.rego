# What the values of a control's rules mean (package gatehouse.outcomes).
package gatehouse.rules

# value takes the type off an expression: OPA's type checker would refuse a
# control whose rule can only be of a wrong type, where that is a DENY.
value(x) := object.get({"value": x}, "value", null)

# denies: anything but false and an empty collection or string.
denies(x) if {
	x != false
	not empty(x)
}

empty(x) if {
	is_string(x)
	x == ""
}

empty(x) if {
	collection(x)
	count(x) == 0
}

collection(x) if is_array(x)

collection(x) if is_object(x)

collection(x) if is_set(x)

joined(x) := x if is_string(x)

joined(x) := concat("; ", sort([s | some s in x; is_string(s)])) if is_set(x)

joined(x) := concat("; ", sort([s | some s in x; is_string(s)])) if is_array(x)

cut(s) := substring(value(s), 0, 1024)

strategies := {"redact", "hash", "last4", "remove"}

too_many(x) if {
	collection(x)
	count(x) > 1000
}

mask_problem(x) := concat("", ["mask must be a set of paths, or an object from path to strategy, not ", type_name(x)]) if {
	not collection(x)
	x != false
}

mask_problem(x) := "mask: every member must be a path with the strategy redact, hash, last4 or remove" if {
	is_object(x)
	some path, strategy in x
	not member_ok(path, strategy)
}

mask_problem(x) := "mask: every element must be a path" if {
	not is_object(x)
	collection(x)
	some path in x
	not path_ok(path)
}

path_ok(path) if {
	is_string(path)
	path != ""
}

member_ok(path, strategy) if {
	path_ok(path)
	strategy in strategies
}

mask(x) := x if is_object(x)

mask(x) := {path: "redact" | some path in x} if {
	collection(x)
	not is_object(x)
}
