# The entry point of a gatehouse bundle: data.gatehouse.decision. It answers as
# the gatehouse server does: it normalises the path, finds the resource, lays
# its fields onto input.resource, asks the controls in scope and combines their
# outcomes. data.gatehouse.index is written beside it.
package gatehouse

import data.gatehouse.index

decision := {
	"decision": "DENY",
	"allow": false,
	"effect": "DENY",
	"reason": "Invalid path",
	"mask": [],
	"policy_id": null,
	"policy_name": null,
	"policy_version": null,
	"resource_id": null,
} if {
	invalid_path
} else := other_side if {
	stricter
} else := object.union(side, {"mask": united}) if {
	side.effect == "MASK"
	other_side.effect == "MASK"
	masks := array.concat(side.mask, other_side.mask)
	united := [m |
		some path in {m.path | some m in masks}
		strictest := max([index.strictness[m.strategy] | some m in masks; m.path == path])
		some strategy, rank in index.strictness
		rank == strictest
		m := {"path": path, "strategy": strategy}
	]
} else := side

# Where a path names another resource as it is spelled than once it is folded, nobody
# knows which of the two the application serves: both must permit.
stricter if {
	count(scope) == 0
	other_side
}

stricter if {
	side.allow
	other_side.allow == false
}

stricter if {
	side.effect == "ALLOW"
	other_side.effect == "MASK"
}

other_side := answer if {
	forced := literal.id
	answer := side with data.gatehouse.index.forced as forced
}

literal := r if {
	not numbered
	resource.path_matching != "exact"
	r := search_for(asked, spelling, [true])
	r.id != resource.id
	index.scope[format_int(r.id, 10)]
}

numbered if is_number(sent.id)

side := object.union(answered, asking)

answered := {
	"decision": {true: "PERMIT", false: "DENY"}[permits],
	"allow": permits,
	"effect": effect,
	"reason": reason,
	"mask": mask,
	"policy_id": object.get(winner, "id", null),
	"policy_name": object.get(winner, "name", null),
	"policy_version": object.get(winner, "version", null),
	"resource_id": object.get(resource, "id", null),
}

# --- combining: DENY, then MASK, then ALLOW; the lowest id names it ---

results := [o |
	some name in scope
	o := {"name": name, "verdict": data.gatehouse.outcomes[name].verdict} with input as enriched
]

scope := index.scope[format_int(resource.id, 10)] if {
	true
} else := index.global

effects := {o.verdict.effect | some o in results}

default effect := "NO_MATCH"

effect := [e | some e in ["DENY", "MASK", "ALLOW"]; e in effects][0]

permits := effect in {"ALLOW", "MASK"}

winning := [o.name | some o in results; o.verdict.effect == effect; effect != "NO_MATCH"][0]

default winner := {}

winner := index.controls[winning]

reason := r if {
	r := data.gatehouse.outcomes[winning].reason with input as enriched
} else := concat("", ["There is no resource ", json.marshal(sent.id), " in this environment, and ", unresolved_rest]) if {
	is_number(sent.id)
	not resource.id
} else := "No active control applies to the request" if {
	count(scope) == 0
} else := "No control matched the request"

default unresolved_rest := "no tenant-wide control matched the request"

unresolved_rest := "no tenant-wide control applies" if count(scope) == 0

default mask := []

mask := [{"path": path, "strategy": strategy} |
	some path in {p | some o in results; some p, _ in o.verdict.mask}
	strictest := max([index.strictness[o.verdict.mask[path]] | some o in results])
	some strategy, rank in index.strictness
	rank == strictest
] if {
	effect == "MASK"
}

# --- what may be requested after a denial: the resource says so, or the control that denied ---

default asking := {}

asking := {"request_access": {
	"subject": {"id": given.user.id},
	"action": {"name": given.action.name},
	"resource": {"id": format_int(resource.id, 10)},
}} if {
	not permits
	requestable
	not failed
	is_string(given.user.id)
	given.user.id != ""
	is_string(given.action.name)
	given.action.name != ""
}

requestable if resource.doc.attributes.request_access == true

requestable if {
	resource.id
	some o in results
	blamed(o.name)
	index.controls[o.name].requestable
}

# Where no control matched, each that was asked counts.
blamed(_) if effect == "NO_MATCH"

blamed(name) if name == winning

# A grant would not change an error.
failed if {
	some o in results
	o.name == winning
	o.verdict.problem
}

# --- the input that the controls see ---

parts := {"user", "resource", "action", "context", "request", "mcp", "llm", "usage"}

given := {k: v |
	is_object(input)
	some k, v in input
	k in parts
	is_object(v)
}

sent := object.get(given, "resource", {})

enriched := object.union(object.remove(given, ["resource"]), {"resource": merged}) if {
	wants_merge
} else := given

wants_merge if resource.id

wants_merge if canonical_path

default doc := {}

doc := resource.doc

merged := {k: v |
	some k in object.keys(sent) | object.keys(doc) | path_key
	v := merged_member(k)
}

default path_key := set()

path_key := {"path"} if canonical_path

merged_member(k) := canonical_path if {
	k == "path"
} else := sent[k] if {
	k in {"id", "path"}
} else := merged_attributes if {
	k == "attributes"
	is_object(sent.attributes)
	is_object(doc.attributes)
} else := doc[k] if {
	true
} else := sent[k]

merged_attributes[k] := v if {
	some k in object.keys(sent.attributes) | object.keys(doc.attributes)
	v := object.get(doc.attributes, k, object.get(sent.attributes, k, null))
}

# --- matching: by id, else by host, then path, type and method ---

default resource := {}

resource := index.resources[format_int(index.forced, 10)] if {
	true
} else := by_id if {
	true
} else := {} if {
	is_number(sent.id) # it decides alone, and no resource has it
} else := of_format if {
	true
} else := found

found := search(asked, spelling)

# of_format: some servers take what stands behind the last dot for the format of the
# answer, or behind the first, and serve what the path without it names. A pattern that
# names the segment as it is goes first.
of_format := [other |
	not found.path_matching == "exact"
	last := count(asked) - 1
	not names(found, last)
	some bare in without_format(asked[last])
	other := search(array.concat(array.slice(asked, 0, last), [bare]), spelling)
	other.id != object.get(found, "id", null)
	not covered(other)
][0]

without_format(s) := array.concat(
	[bare | regex.match(`[^/]\.[^.]*$`, s); bare := regex.replace(s, `\.[^.]*$`, "")],
	[bare | regex.match(`^[^.]*[^./]\..*\.`, s); bare := regex.replace(s, `(?s)\..*$`, "")],
)

names(r, i) if {
	literal := r.folded[i]
	not literal in {"*", "**"}
}

by_id := index.resources[format_int(sent.id, 10)] if {
	is_number(sent.id)
	round(sent.id) == sent.id
}

# asked are the folded segments that are looked up, spelling those as they were sent.
default asked := null

asked := folded if match_segments

default spelling := null

spelling := match_segments

search(segs, sent_as) := search_for(segs, sent_as, [true, false])

search_for(segs, sent_as, spellings) := first_of("any", segs, sent_as, spellings) if {
	described
	not host
} else := at if {
	at := first_of(concat("", ["host:", host]), segs, sent_as, spellings)
	not yields(at)
} else := at if {
	at := first_of(concat("", ["host:", bare_host]), segs, sent_as, spellings)
	not yields(at)
} else := first_of("host:", segs, sent_as, spellings) if {
	host
} else := first_of(concat("", ["host:", host]), segs, sent_as, spellings) if {
	true
} else := first_of(concat("", ["host:", bare_host]), segs, sent_as, spellings) if {
	true
}

bare_host := regex.replace(host, `:[^:\]]*$`, "")

# yields: what was discovered of a host, and has no control, goes after what has no host.
yields(r) if {
	r.discovered
	not index.scope[format_int(r.id, 10)]
}

described if match_segments

described if type

host := trim_suffix(lower(sent.host), ".") if sent.host != ""

type := sent.type if {
	is_string(sent.type)
	sent.type != ""
}

method := upper(given.action.method) if given.action.method != ""

# first_of is the most specific resource of a group: the shapes stand from the
# most to the least specific, and so do the ids of a pattern. Of patterns that differ
# in their spelling alone, the one that the path is spelled as goes first. The tables
# are only ever read at a full path: OPA would convert them whole each time.
first_of(group, segs, sent_as, spellings) := [r |
	some i, shape in index.match.shapes[group]
	some turn in turns
	some wanted in spellings
	some id in index.match.keys[group][i][key_of(shape, segs)]
	r := index.resources[format_int(id, 10)]
	takes_type(r)
	takes_method(r, turn)
	spelled(r, sent_as) == wanted
	takes_spelling(r, wanted)
][0]

takes_spelling(_, true)

takes_spelling(r, false) if r.path_matching != "exact"

spelled(r, sent_as) := false if {
	some i, literal in r.spelling
	not literal in {"*", "**"}
	literal != sent_as[i]
} else := true

key_of(shape, segs) := concat("/", [s |
	some i, literal in shape.literal
	s := {true: segs[i], false: "*"}[literal]
]) if {
	segs != null
	enough(shape, count(segs))
}

key_of(shape, null) := "" if {
	shape.rest
	count(shape.literal) == 0
}

enough(shape, n) if {
	not shape.rest
	n == count(shape.literal)
}

enough(shape, n) if {
	shape.rest
	n >= count(shape.literal)
}

takes_type(r) if not type

takes_type(r) if r.type == ""

takes_type(r) if r.type == type

# HEAD is taken by what names it, and else as the GET that it stands for.
turns := [{"method": "HEAD", "named": true}, {"method": "GET", "named": false}] if {
	method == "HEAD"
} else := [{"method": method, "named": false}] if {
	method
} else := [{"named": false}]

takes_method(_, turn) if not turn.method

takes_method(r, turn) if {
	not turn.named
	count(r.methods) == 0
}

takes_method(r, turn) if turn.method in r.methods

# --- the path: one canonical form, or none ---

raw_path := sent.path if {
	is_string(sent.path)
	sent.path != ""
}

rooted if startswith(raw_path, "/")

# A name without a slash before it is matched by its canonical form, if it has
# one, and left to the controls as it was sent.
slashed := raw_path if {
	rooted
} else := concat("", ["/", raw_path])

plain if regex.match(`^(/[-0-9A-Za-z_~!$&'()*+,;=:@][-.0-9A-Za-z_~!$&'()*+,;=:@]*)+$`, slashed)

# Bytes, not characters.
short if count(hex.encode(slashed)) <= 16384

refused if not short

refused if count(segments) > 256

refused if regex.match(`[\x00-\x1f\x7f\\?#]`, slashed)

refused if regex.match(`(?i)%(0[0-9a-f]|1[0-9a-f]|2f|5c|7f)`, slashed)

refused if contains(regex.replace(slashed, "%[0-9A-Fa-f][0-9A-Fa-f]", ""), "%")

refused if contains(decoded, "\ufffd")

# Bytes that are no UTF-8 are written as an escape by json.marshal.
refused if contains(json.marshal(decoded), `\ufffd`)

refused if {
	some s in split(escaped, "/")
	regex.match(`^\.\.?(;|%3B)`, s)
}

decoded := slashed if {
	plain
} else := urlquery.decode(replace(slashed, "+", "%2B"))

# escaped: no escapes of what RFC 3986 leaves unreserved, all others in capitals, and
# one for every character that it does not allow in a segment.
escaped := slashed if {
	plain
} else := strings.replace_n({c: e | some c in odd_characters; e := replace(urlquery.encode(c), "+", "%20")}, in_capitals)

odd_characters := regex.find_n(`[^-A-Za-z0-9._~!$&'()*+,;=:@/%]`, in_capitals, -1)

in_capitals := strings.replace_n({e: upper(e) | some e in regex.find_n(`%[0-9A-Fa-f]{2}`, reserved_only, -1)}, reserved_only)

reserved_only := strings.replace_n(index.fold.unreserved, slashed)

raw_segments := [s | some s in split(escaped, "/"); not s in {"", "."}]

segments := raw_segments if {
	not ".." in raw_segments
} else := [s |
	some i, s in raw_segments
	s != ".."
	not popped(i)
]

# popped: after segment i there is a stretch with more steps up than down.
popped(i) if {
	some j in numbers.range(i + 1, count(raw_segments) - 1)
	j > i
	stretch := array.slice(raw_segments, i + 1, j + 1)
	ups := count([s | some s in stretch; s == ".."])
	ups * 2 > count(stretch)
}

match_segments := segments if {
	raw_path
	not refused
}

# The controls see no parameters of segments, and the pattern's spelling where it is
# literal.
canonical_path := concat("/", array.concat([""], decided)) if {
	rooted
	not refused
	count(segments) > 0
} else := "/" if {
	rooted
	not refused
}

decided := segments if {
	resource.path_matching == "exact"
} else := [d | some i, _ in segments; d := respelled(i)]

respelled(i) := literal if {
	literal := resource.spelling[i]
	not literal in {"*", "**"}
	covered(resource)
} else := bare if {
	bare := split(segments[i], ";")[0]
	bare != ""
} else := segments[i]

invalid_path if {
	rooted
	refused
}

invalid_path if {
	rooted
	not refused
	hidden
}

# --- folding: one spelling for all that some servers read as the same ---

folded := segments if {
	settled
} else := [f | some s in unescaped_segments; f := folded_segment(s)]

# Most paths fold to themselves.
settled if not regex.match(`[A-Z%;+]|:\$|\.(/|$)`, escaped)

unescaped_segments := [u | some s in segments; u := unescaped(lower(s))]

unescaped(s) := s if {
	not contains(s, "%")
} else := unescaped_once(unescaped_once(unescaped_once(s)))

unescaped_once(s) := strings.replace_n(index.fold.wide, s) if {
	regex.match(`%[c-f]`, s)
} else := strings.replace_n(index.fold.ascii, s) if {
	contains(s, "%")
} else := s

# Behind a name Windows takes a stream with its type: a.txt::$DATA.
cut(s) := regex.replace(regex.replace(s, `(?s)[;?#\x00].*`, ""), `(?s):.*:\$.*`, "")

# Some servers read a plus as a space.
spaced(s) := replace(cut(s), "+", " ")

trimmed(s) := regex.replace(spaced(s), `^[ \t\n\v\f\r]+|[. \t\n\v\f\r]+$`, "")

folded_segment(s) := t if {
	t := trimmed(s)
	t != ""
} else := s

pieces_of(s) := [p | some p in split(replace(s, `\`, "/"), "/"); p != ""]

pieces := [p | some s in unescaped_segments; some p in pieces_of(s)]

# hidden: a server that reads the path twice, or drops parts of its segments, would
# serve another resource, and its segments do not tell.
hidden if {
	not foreseen
	some p in pieces
	regex.match(`^[ \t\n\v\f\r]*\.\.[ \t\n\v\f\r]*$`, spaced(p))
}

hidden if {
	not foreseen
	divided
	some other_path in others
	other := search(other_path, other_path)
	other.id != object.get(resource, "id", null)
	not covered(other)
}

foreseen if settled

foreseen if is_number(sent.id)

foreseen if resource.path_matching == "exact"

divided if {
	some s in unescaped_segments
	trimmed(s) == ""
}

divided if {
	some s in unescaped_segments
	regex.match(`[/\\]`, s)
}

# others: the path of servers that find other segments in it. They differ in when they
# cut parameters off: before they remove escapes, or behind.
others := {
	[t | some s in segments; some p in pieces_of(unescaped(cut(lower(s)))); t := trimmed(p); t != ""],
	[t | some s in segments; some p in pieces_of(unescaped_once(unescaped_once(cut(unescaped_once(lower(s)))))); t := trimmed(p); t != ""],
	[t | some s in segments; some p in pieces_of(unescaped_once(cut(unescaped_once(unescaped_once(lower(s)))))); t := trimmed(p); t != ""],
	[t | some p in pieces; t := trimmed(p); t != ""],
}

covered(r) if {
	not uncovered(r)
	not "**" in r.folded
	count(folded) == count(r.folded)
}

covered(r) if {
	not uncovered(r)
	"**" in r.folded
	count(folded) >= count(r.folded) - 1
}

uncovered(r) if {
	some i, literal in r.folded
	not literal in {"*", "**"}
	not folded[i] == literal
}
