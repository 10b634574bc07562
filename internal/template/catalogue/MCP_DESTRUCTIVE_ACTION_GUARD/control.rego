# Refuses MCP tool calls that destroy something, by the tool's name, by what the
# operator says of it (attributes.destructive_tools, attributes.safe_tools) and
# by what the arguments ask for, unless the caller has a permitted role. The
# server's own hints (destructiveHint) are not believed.
package templates.mcp_destructive_action_guard

# Parameter: roles that may destroy.
permitted_roles := ["admin", "mcp_operator"]

# Parameter: words in a tool's name that mean destruction.
destructive_words := [
	"delete", "del", "remove", "rm", "drop", "destroy", "purge", "truncate", "wipe", "erase", "kill", "terminate",
	"revoke", "uninstall", "overwrite", "shutdown", "reset", "format", "prune", "unlink", "deprovision", "flush",
]

# Parameter: beginnings of a word that mean the same where the words are not set apart (deleteuser).
destructive_stems := ["delete", "destroy", "truncate", "purge", "uninstall", "terminate", "deprovision"]

# Parameter: arguments that hold prose: what they mention is not done.
prose_arguments := ["body", "comment", "description", "message", "note", "summary", "title"]

# Parameter: further patterns (RE2, on lower-case text with single spaces) of destructive arguments.
extra_patterns := []

allow if count(deny) == 0

deny contains sprintf("The tool %q destroys (%s); that needs one of the roles %s", [tool, why, roles_text]) if {
	some why in destructive
	not permitted
}

deny contains "The request is not an MCP message" if {
	posting
	not has_message
}

deny contains "The tool's name is missing or not plain" if {
	calling
	not tool
}

reason := "The caller's role permits destructive tools" if {
	count(destructive) > 0
	permitted
}

roles_text := concat(", ", permitted_roles)

posting if {
	is_string(input.action.method)
	upper(input.action.method) == "POST"
}

has_message if is_string(input.mcp.method)

calling if input.mcp.method == "tools/call"

tool := input.mcp.tool if {
	is_string(input.mcp.tool)
	count(input.mcp.tool) <= 128
	regex.match(`^[A-Za-z0-9_./:-]+$`, input.mcp.tool)
}

destructive contains "the operator says so" if {
	calling
	named(input.resource.attributes.destructive_tools)
}

destructive contains sprintf("its name says %s", [word]) if {
	calling
	not declared_safe
	some word in words
	word in destructive_words
}

destructive contains sprintf("its name says %s", [stem]) if {
	calling
	not declared_safe
	some word in words
	some stem in items(destructive_stems)
	contains(strings.replace_n(harmless_words, word), stem)
}

# dbdrop and rmfile: a destructive word joined with what it destroys.
destructive contains sprintf("its name says %s", [verb]) if {
	calling
	not declared_safe
	some word in words
	some verb in destructive_words
	some rest in {trim_prefix(word, verb), trim_suffix(word, verb)} - {word}
	regex.match(things, rest)
	not sprintf("%s%s", [rest, verb]) in nouns
}

destructive contains "its arguments do" if {
	calling
	some text in orders
	some pattern in array.concat(patterns, extra_patterns)
	regex.match(pattern, text)
}

# A statement that changes or deletes every row.
destructive contains "its arguments touch every row" if {
	calling
	some text in orders
	some statement in split(text, ";")
	regex.match(`^ ?(?:with .*\) ?)?(?:update \S+ set |delete from )`, statement)
	not contains(statement, " where ")
}

destructive contains "its arguments touch every row" if {
	calling
	some text in orders
	regex.match(`\bwhere \(?(?:1 ?= ?1|true)\b`, text)
	regex.match(`\b(?:update \S+ set|delete from) `, text)
}

destructive contains "its arguments ask for the method DELETE" if {
	calling
	walk(input.mcp.arguments, [path, method])
	is_string(method)
	upper(trim_space(method)) == "DELETE"
	last := path[count(path) - 1]
	is_string(last)
	lower(last) in {"method", "http_method", "verb"}
}

# What is destroyed, as names say it.
things := concat("", [
	`^(?:all|my|our|data|databases?|db|tables?|rows?|records?|columns?|schemas?|index|collections?`,
	`|documents?|files?|folders?|dirs?|buckets?|objects?|users?|accounts?|members?|groups?|roles?`,
	`|keys?|tokens?|secrets?|repos?|branch|projects?|tenants?|pods?|nodes?|vms?|instances?|clusters?`,
	`|containers?|volumes?|disks?|queues?|topics?|caches?|logs?|backups?|servers?|process|jobs?)+$`,
])

# Words that hold a destructive one and mean another.
harmless_words := {"undelete": "", "indeterminate": "", "determinate": "", "nondestr": ""}

# Names of things, not orders.
nouns := {
	"dataformat", "fileformat", "logformat", "documentformat",
	"tableformat", "recordformat", "objectformat", "keyformat",
}

declared_safe if named(input.resource.attributes.safe_tools)

named(tools) if {
	some name in tools
	is_string(name)
	lower(name) == lower(tool)
}

# deleteUser, delete_user and delete-user are the words delete and user.
words := split(regex.replace(lower(regex.replace(apart, `([a-z0-9])([A-Z])`, "${1} ${2}")), `[^a-z0-9]+`, " "), " ")

# IAMDeleteUser and DBDrop: an abbreviation ends where a word begins.
apart := regex.replace(tool, `([A-Z])([A-Z][a-z])`, "${1} ${2}")

# The arguments' texts but prose: lower case, without comments, quotes and the
# tricks by which a shell or a database reads over them.
orders contains text if {
	calling
	walk(input.mcp.arguments, [path, value])
	is_string(value)
	not prose(path)
	bare := strings.replace_n({"'": "", "\"": "", "`": "", "\\": "", "${ifs}": " ", "$ifs": " "}, lower(value))
	text := trim_space(regex.replace(regex.replace(bare, `(?s)/\*.*?\*/|--[^\n]*\n`, " "), `\s+`, " "))
}

prose(path) if {
	some step in path
	is_string(step)
	lower(step) in prose_arguments
}

patterns := [
	`\b(?:drop|truncate|alter) (?:table|database|schema|index|view|user|role|collection)\b`,
	`(?:^|;) ?truncate [a-z]`,
	`\brm (?:\S+ )*(?:-[a-z]*[rf]|--recursive|--force)`,
	`\b(?:mkfs|shred|wipefs)\b|\bdd if=\S+ (?:\S+ )*of=/dev/|> ?/dev/(?:sd|nvme|vd)`,
	`\bgit (?:\S+ )*(?:push (?:\S+ )*(?:--force|-f\b)|reset --hard|clean -[a-z]*f)`,
	`\b(?:terraform|pulumi|tofu) (?:\S+ )*destroy\b|\bkubectl (?:\S+ )*delete\b|\bhelm (?:\S+ )*(?:uninstall|delete)\b`,
	`\bdocker (?:\S+ )*(?:prune|rm|rmi)\b|\baws s3 (?:rb|rm)\b|\bgcloud (?:\S+ )*delete\b`,
	`\bdel (?:/[a-z] )*/s\b|\bformat [a-z]:|\bremove-item (?:\S+ )*-(?:recurse|force)`,
	`\.(?:drop|dropdatabase|deletemany|remove)\( ?(?:\{ ?\} ?)?\)|^flush(?:all|db)\b`,
	`\bshutil\.rmtree\(|\bos\.(?:remove|unlink|rmdir)\(|\bfs\.(?:rm|unlink|rmdir)(?:sync)?\(`,
]

permitted if {
	identified
	some role in input.user.roles
	is_string(role)
	some wanted in items(permitted_roles)
	lower(role) == lower(wanted)
}

identified if {
	is_string(input.user.id)
	not lower(trim_space(input.user.id)) in {"", "anonymous"}
}

identified if is_number(input.user.id)

# An empty list or object that is written out has a type that OPA does not let one go through.
items(list) := list
