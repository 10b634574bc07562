# Lets requests name only hosts that the resource may call. The hosts come from
# its enrichment (input.resource.egress_destinations) at every decision. Looked
# at are the arguments of MCP tools, query parameters and input.context.destination.
package templates.egress_allowlist

# Parameter: hosts that count while the resource names none; *.example.com is every host below it.
egress_destinations := []

# Parameter: hosts that are permitted beside those of the resource.
extra_destinations := []

# Parameter: schemes that are permitted.
schemes := ["https", "http", "wss", "ws"]

# Parameter: arguments and query parameters that hold a host or an address even without a scheme.
address_names := [
	"url", "uri", "host", "hostname", "domain", "endpoint", "server", "base_url", "webhook", "webhook_url", "callback",
	"callback_url", "redirect_uri", "destination", "proxy",
]

allow if count(deny) == 0

deny contains sprintf("The destination %q is not among the permitted ones", [host]) if {
	some host in hosts
	plain(host)
	not permitted(host)
}

deny contains "A destination is not written plainly" if {
	some host in hosts
	not plain(host)
}

deny contains sprintf("The scheme %q is not permitted", [scheme]) if {
	some scheme in {address.scheme | some address in addresses}
	not scheme in schemes
}

reason := sprintf("All destinations are permitted: %s", [concat(", ", sort(hosts))]) if {
	count(hosts) > 0
	count(deny) == 0
}

# Where a text says whom to call.
addresses contains {"scheme": concat("", [hit[1], hit[3]]), "authority": concat("", [hit[2], hit[4]])} if {
	some found in texts
	some hit in regex.find_all_string_submatch_n(address_pattern, found.text, -1)
}

# Browsers and libraries read https:/host, https:\\host and https:host alike.
address_pattern := `\b(https?|wss?|ftps?):[/\\]*([^\s/\\?#"'<>(){}|,;]+)|\b([a-z][a-z0-9+.-]*)://([^\s/\\?#"'<>]*)`

hosts contains host_of(address.authority) if some address in addresses

hosts contains host_of(bare) if {
	some found in texts
	lower(found.name) in address_names
	not contains(found.text, "://")
	not regex.match(`^(?:https?|wss?|ftps?):`, found.text)
	bare := authority(found.text)
}

# Without a scheme: //host/x and host:port/x, but not /path and not a plain word.
authority(text) := found[0][1] if {
	found := regex.find_all_string_submatch_n(`^\s*(?:[/\\][/\\]+)?([^\s/\\?#]+)`, text, 1)
	regex.match(`[.:。．｡%]|^localhost$|^[0-9]+$|^0x`, found[0][1])
}

texts contains {"name": name, "text": text} if {
	walk(input.mcp.arguments, [path, value])
	is_string(value)
	names := [step | some step in path; is_string(step)]
	name := concat("", array.slice(names, count(names) - 1, count(names)))
	text := readable(value, name)
}

texts contains {"name": name, "text": readable(value, name)} if {
	some name, values in input.request.query
	is_string(name)
	some value in values
	is_string(value)
}

texts contains {"name": "destination", "text": readable(input.context.destination, "destination")} if {
	is_string(input.context.destination)
}

# In an address, tabs and line ends are read over.
readable(value, name) := regex.replace(lower(value), `[\t\r\n]`, "") if {
	lower(name) in address_names
} else := lower(value)

# user@host:port, [::1]:80, host. and host。com come down to the host.
host_of(text) := name if {
	parts := split(text, "@")
	last := strings.replace_n({"。": ".", "．": ".", "｡": "."}, parts[count(parts) - 1])
	name := trim_right(regex.replace(last, `:[0-9]*$`, ""), ".")
}

plain(host) if regex.match(`^(?:[a-z0-9_-]+\.)*[a-z0-9_-]+$|^\[[0-9a-f:.]+\]$`, host)

permitted(host) if host in listed

permitted(host) if {
	some pattern in listed
	startswith(pattern, "*.")
	endswith(host, substring(pattern, 1, -1))
}

listed contains clean(host) if some host in input.resource.egress_destinations

listed contains clean(host) if {
	not named
	some host in items(egress_destinations)
}

listed contains clean(host) if some host in items(extra_destinations)

listed contains clean(regex.replace(input.resource.original_host, `:[0-9]+$`, "")) if {
	is_string(input.resource.original_host)
}

named if {
	some host in input.resource.egress_destinations
	is_string(host)
}

clean(host) := trim_right(lower(trim_space(host)), ".") if is_string(host)

# An empty list or object that is written out has a type that OPA does not let one go through.
items(list) := list
