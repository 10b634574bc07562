# An agent uses a tool only with the consent of the person it acts for. Consent
# is an attribute of the stored user, read at every decision:
# input.user.attributes.tool_consent, a list of tools (or glob patterns), or an
# object of tool to the time until which it holds (RFC 3339, UTC, to the second).
package templates.agent_tool_use_consent

# Parameter: tools, as glob patterns, that need no consent. The resource's
# attributes.harmless_tools, names without patterns, count too.
harmless_tools := ["get_*", "list_*", "search*", "read_*", "describe_*", "lookup_*", "think", "current_time"]

# Parameter: tools, as glob patterns, that need consent even so.
sensitive_tools := ["*secret*", "*password*", "*credential*", "*token*", "*private*"]

# Parameter: tools, as glob patterns, that need consent by their own name: a pattern such as * does not reach them.
grave_tools := ["*pay*", "*transfer*", "*purchase*", "*order*", "*delete*", "*publish*", "*send*", "*sign*"]

allow if count(deny) == 0

deny contains "An agent's tools need a person whom it acts for" if {
	calling
	not identified
}

deny contains "The tool's name is missing or not plain" if {
	calling
	not tool
}

deny contains sprintf("%v has not consented to the tool %q", [input.user.id, tool]) if {
	calling
	identified
	not harmless
	not consented
}

reason := sprintf("%v has consented to the tool %q", [input.user.id, tool]) if {
	calling
	identified
	consented
}

reason := sprintf("The tool %q needs no consent", [tool]) if {
	calling
	identified
	harmless
	not consented
}

calling if input.mcp.method == "tools/call"

tool := input.mcp.tool if {
	is_string(input.mcp.tool)
	count(input.mcp.tool) <= 128
	regex.match(`^[A-Za-z0-9_./:-]+$`, input.mcp.tool)
}

harmless if {
	fits(harmless_tools)
	not fits(sensitive_tools)
}

harmless if {
	some name in input.resource.attributes.harmless_tools
	is_string(name)
	lower(name) == lower(tool)
}

consented if {
	some given in consents
	lower(given) == lower(tool)
}

consented if {
	not fits(grave_tools)
	some given in consents
	regex.match(`^[A-Za-z0-9_./:*-]+$`, given)
	glob.match(lower(given), null, lower(tool))
}

consents contains given if {
	is_array(input.user.attributes.tool_consent)
	some given in input.user.attributes.tool_consent
	is_string(given)
}

# Times of one form sort as text.
consents contains given if {
	is_object(input.user.attributes.tool_consent)
	some given, until in input.user.attributes.tool_consent
	is_string(until)
	regex.match(`^[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z$`, until)
	until > sprintf("%sZ", [substring(time.format(time.now_ns()), 0, 19)])
}

fits(patterns) if {
	some pattern in patterns
	glob.match(pattern, null, lower(tool))
}

identified if {
	is_string(input.user.id)
	not lower(trim_space(input.user.id)) in {"", "anonymous"}
}

identified if is_number(input.user.id)
