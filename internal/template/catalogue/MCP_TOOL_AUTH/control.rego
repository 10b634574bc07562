# Decides who may use an MCP server and which of its tools. What an operator has
# approved stands in the resource's attributes and is read at every decision:
# attributes.approved_tools (only those may be called) and attributes.tool_roles
# (tool to the roles that may call it). What a server says of its own tools is
# not believed.
package templates.mcp_tool_auth

# Parameter: roles that may use the server at all; empty: every caller with an identity.
caller_roles := []

# Parameter: tools, as glob patterns, that need one of the roles. Every pattern that fits counts.
tool_roles := {
	"*admin*": ["admin"],
	"*credential*": ["admin"],
	"*password*": ["admin"],
	"*permission*": ["admin"],
	"*secret*": ["admin"],
}

# Parameter: tools, as glob patterns, that nobody may call.
blocked_tools := []

# Parameter: protocol methods that every permitted caller may use.
open_methods := [
	"initialize", "ping", "response", "server/discover", "subscriptions/listen", "logging/setLevel",
	"completion/complete", "tools/list", "prompts/list", "prompts/get", "resources/list", "resources/read",
	"resources/templates/list", "resources/subscribe", "resources/unsubscribe", "tasks/get", "tasks/list",
	"tasks/result", "tasks/cancel",
]

allow if count(deny) == 0

deny contains "MCP calls need a caller with an identity" if not identified

deny contains sprintf("This MCP server is for the roles %s", [concat(", ", caller_roles)]) if {
	count(caller_roles) > 0
	not holds(caller_roles)
}

deny contains "The request is not an MCP message" if {
	posting
	not has_message
}

deny contains "The MCP method is not known" if {
	is_string(input.mcp.method)
	not known_method
}

deny contains "The tool's name is missing or not plain" if {
	calling
	not tool
}

deny contains sprintf("Nobody may call the tool %q", [tool]) if {
	calling
	some pattern in items(blocked_tools)
	glob.match(lower(pattern), null, lower(tool))
}

deny contains sprintf("The tool %q is not among the approved ones", [tool]) if {
	calling
	is_array(input.resource.attributes.approved_tools)
	not tool in input.resource.attributes.approved_tools
}

deny contains sprintf("The tool %q needs one of the roles %s", [tool, concat(", ", roles)]) if {
	calling
	some pattern, roles in items(tool_roles)
	glob.match(lower(pattern), null, lower(tool))
	not holds(roles)
}

deny contains sprintf("The tool %q is reserved to roles that the caller has not", [tool]) if {
	calling
	some name, roles in input.resource.attributes.tool_roles
	is_string(name)
	lower(name) == lower(tool)
	not holds(roles)
}

reason := sprintf("The caller may call the tool %q", [tool]) if {
	calling
	count(deny) == 0
}

posting if {
	is_string(input.action.method)
	upper(input.action.method) == "POST"
}

has_message if is_string(input.mcp.method)

calling if input.mcp.method == "tools/call"

known_method if calling

known_method if input.mcp.method in open_methods

known_method if startswith(input.mcp.method, "notifications/")

# Names as MCP has them. Anything else could look like another tool to a person.
tool := input.mcp.tool if {
	is_string(input.mcp.tool)
	count(input.mcp.tool) <= 128
	regex.match(`^[A-Za-z0-9_./:-]+$`, input.mcp.tool)
}

holds(roles) if {
	identified
	some role in input.user.roles
	is_string(role)
	some permitted in roles
	is_string(permitted)
	lower(role) == lower(permitted)
}

identified if {
	is_string(input.user.id)
	not lower(trim_space(input.user.id)) in {"", "anonymous"}
}

identified if is_number(input.user.id)

# An empty list or object that is written out has a type that OPA does not let one go through.
items(list) := list
