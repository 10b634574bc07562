# Lets only callers within the region in which the resource's data must stay
# reach it. The region comes from its enrichment (input.resource.data_residency)
# at every decision. Where a caller is, is told by input.context.region or
# .country, by the stored user's attributes region or country, and by networks
# that an operator names. Everything known must lie within; nothing known is refused.
package templates.regional_access_lock

# Parameter: the region that counts while the resource names none.
data_residency := "eu"

# Parameter: what belongs to a region beside its own name: countries (ISO 3166) and names of regions.
regions := {
	"eu": [
		"eea", "europe", "at", "be", "bg", "cy", "cz", "de", "dk", "ee", "es", "fi", "fr", "gr", "hr", "hu", "ie", "it",
		"lt", "lu", "lv", "mt", "nl", "pl", "pt", "ro", "se", "si", "sk", "is", "li", "no",
	],
	"asia-pacific": [
		"apac", "ap", "au", "bd", "bn", "hk", "id", "in", "jp", "kh", "kr", "la", "lk", "mm", "mn", "mo", "my", "np",
		"nz", "ph", "sg", "th", "tw", "vn",
	],
	"us": ["usa", "north-america"],
}

# Parameter: networks (CIDR) that lie in a region, for callers of whom only the address is known.
region_networks := {}

# Parameter: roles that are not bound to a region.
unbound_roles := []

allow if count(deny) == 0

deny contains sprintf("The data must stay in %s, and the caller is in %s", [home, place]) if {
	some place in places
	not within(place)
	not unbound
}

deny contains sprintf("The data must stay in %s, and it is not known where the caller is", [home]) if {
	count(places) == 0
	not local_address
	not unbound
}

reason := sprintf("The caller is within %s", [home]) if {
	count(deny) == 0
	not unbound
}

reason := "The caller's role is not bound to a region" if unbound

home := folded(input.resource.data_residency)

home := folded(data_residency) if not home_set

home_set if folded(input.resource.data_residency)

places contains folded(input.context.region)

places contains folded(input.context.country)

places contains folded(input.user.attributes.region)

places contains folded(input.user.attributes.country)

folded(name) := replace(replace(lower(trim_space(name)), "_", "-"), " ", "-") if {
	is_string(name)
	trim_space(name) != ""
}

within(place) if place == home

within(place) if place in items(regions)[home]

# A cloud's region: eu-west-1 is in eu, ap-south-1 in asia-pacific.
within(place) if {
	startswith(place, sprintf("%s-", [home]))
	regex.match(`^[a-z]+-[a-z]+-[0-9]+$`, place)
}

within(place) if {
	home == "asia-pacific"
	regex.match(`^ap-[a-z]+-[0-9]+$`, place)
}

# An address tells the region only to an operator who has named the networks.
local_address if {
	is_string(input.context.ip_address)
	net.cidr_is_valid(sprintf("%s/%d", [input.context.ip_address, length]))
	some network in items(region_networks)[home]
	net.cidr_contains(network, input.context.ip_address)
}

default length := 32

length := 128 if contains(input.context.ip_address, ":")

unbound if {
	some role in input.user.roles
	is_string(role)
	some permitted in items(unbound_roles)
	lower(role) == lower(permitted)
}

# An empty list or object that is written out has a type that OPA does not let one go through.
items(list) := list
