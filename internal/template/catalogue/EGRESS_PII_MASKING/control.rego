# Hides personal data in answers. What kinds of it the resource holds comes from
# its enrichment (input.resource.pii_categories) at every decision.
package templates.egress_pii_masking

# Parameter: the categories that are hidden while the resource names none.
pii_categories := ["names", "emails", "ssn", "card_numbers", "health_records", "addresses"]

# Parameter: categories that are hidden beside those of the resource.
also_masked := ["phones"]

# Parameter: how a category is hidden (redact, hash, last4, remove); redact where it is not
# named. On a restricted resource nothing is shown in part: last4 and hash become redact.
strategies := {"card_numbers": "last4"}

# Parameter: further fields of JSON answers, path to strategy.
fields := {}

# Parameter: roles that see everything in clear.
clear_roles := ["privacy_officer"]

allow := true

deny contains "Restricted personal data is not given to callers without an identity" if {
	restricted
	not identified
}

mask[sprintf("pii:%s", [category])] := strategy(wanted) if {
	not clear
	some category in categories
	wanted := object.get(strategies, category, "redact")
}

mask[path] := strategy(wanted) if {
	not clear
	some path, wanted in items(fields)
}

reason := sprintf("Personal data is hidden in the answer: %s", [concat(", ", sort(categories))]) if {
	not clear
	count(deny) == 0
}

reason := "Personal data is shown: the caller's role permits it" if {
	clear
	count(deny) == 0
}

categories contains category if {
	some category in input.resource.pii_categories
	category in known
}

categories contains category if {
	not named
	some category in items(pii_categories)
}

categories contains category if some category in items(also_masked)

# A resource that names only what nobody knows is taken as one that names nothing.
named if {
	some category in input.resource.pii_categories
	category in known
}

known := {"names", "emails", "ssn", "card_numbers", "health_records", "addresses", "phones"}

restricted if input.resource.data_classification == "restricted"

strategy(wanted) := "redact" if {
	restricted
	wanted in {"last4", "hash"}
} else := wanted

clear if {
	identified
	some role in input.user.roles
	is_string(role)
	some permitted in items(clear_roles)
	lower(role) == lower(permitted)
}

identified if {
	is_string(input.user.id)
	not lower(trim_space(input.user.id)) in {"", "anonymous"}
}

identified if is_number(input.user.id)

# An empty list or object that is written out has a type that OPA does not let one go through.
items(list) := list
