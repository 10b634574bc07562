# Keeps data under GDPR, HIPAA, PCI-DSS or SOX from leaving in bulk, to callers
# without need, or to the wrong region. The regimes come from the resource's
# enrichment (input.resource.compliance_tags) at every decision.
package templates.regulated_data_egress

# Parameter: the regimes that count while the resource names none.
compliance_tags := ["GDPR", "HIPAA", "PCI-DSS", "SOX"]

# Parameter: roles that see the data of a regime unmasked.
need_to_know := {
	"GDPR": ["data_protection_officer"],
	"HIPAA": ["clinician"],
	"PCI-DSS": ["payment_operator"],
	"SOX": ["finance_controller"],
}

# Parameter: what is hidden from everybody else, path to strategy, by regime.
regime_masks := {
	"GDPR": {"pii:ssn": "redact"},
	"HIPAA": {"pii:health_records": "redact", "pii:ssn": "redact"},
	"PCI-DSS": {"pii:card_numbers": "last4"},
	"SOX": {},
}

# Parameter: roles that may take data out in bulk.
export_roles := ["compliance_officer", "data_protection_officer"]

# Parameter: words in a path, in an action's name or in a query's names that mean bulk.
export_words := ["export", "exports", "download", "dump", "backup", "bulk", "extract"]

# Parameter: the most records that one answer may hold.
max_records := 1000

# Parameter: query parameters that ask for a number of records.
page_parameters := ["limit", "size", "page_size", "pagesize", "per_page", "top", "count", "rows", "max_results"]

# Parameter: regions and countries that data under GDPR may go to.
gdpr_regions := [
	"eu", "eea", "at", "be", "bg", "cy", "cz", "de", "dk", "ee", "es", "fi", "fr", "gr", "hr", "hu", "ie", "it", "lt",
	"lu", "lv", "mt", "nl", "pl", "pt", "ro", "se", "si", "sk", "is", "li", "no", "ch", "gb", "uk", "jp", "nz", "kr",
]

# Parameter: regimes whose records may not be deleted but by these roles.
retention_roles := {"SOX": ["records_manager"], "HIPAA": ["records_manager"]}

allow if count(deny) == 0

deny contains "Regulated data is not given to callers without an identity" if not identified

deny contains sprintf("Regulated data (%s) leaves in bulk only for the roles %s", [names, permitted]) if {
	bulk
	not holds(export_roles)
	permitted := concat(", ", export_roles)
}

deny contains sprintf("Data under GDPR may not go to the region %q", [region]) if {
	"gdpr" in regimes
	some region in destinations
	not region_permitted(region)
}

deny contains sprintf("Records under %s are deleted only by the roles %s", [regime, concat(", ", permitted)]) if {
	deleting
	some regime, permitted in items(retention_roles)
	lower(regime) in regimes
	not holds(permitted)
}

mask[path] := strategy if {
	some regime, paths in items(regime_masks)
	lower(regime) in regimes
	not holds(object.get(need_to_know, regime, []))
	some path, strategy in paths
}

reason := sprintf("Regulated data (%s) leaves as its regimes permit", [names]) if count(deny) == 0

names := concat(", ", sort([upper(regime) | some regime in regimes]))

supported := {"gdpr", "hipaa", "pci-dss", "sox"}

regimes contains folded(tag) if {
	some tag in input.resource.compliance_tags
	folded(tag) in supported
}

regimes contains lower(tag) if {
	not tagged
	some tag in items(compliance_tags)
}

tagged if {
	some tag in input.resource.compliance_tags
	folded(tag) in supported
}

# PCI DSS, pci_dss and PCI-DSS are one regime.
folded(tag) := replace(replace(lower(trim_space(tag)), " ", "-"), "_", "-") if is_string(tag)

bulk if {
	some word in words(input.resource.path)
	word in export_words
}

bulk if {
	some word in words(input.action.name)
	word in export_words
}

bulk if {
	some name, _ in input.request.query
	is_string(name)
	lower(name) in export_words
}

# A page that is larger than permitted, or of a size that is no plain number: all, -1, 1e9.
bulk if {
	some name, values in input.request.query
	is_string(name)
	lower(name) in page_parameters
	some size in values
	not small(size)
}

small(size) if {
	is_string(size)
	regex.match(`^[0-9]+$`, size)
	count(size) < 10
	to_number(size) <= max_records
}

words(text) := split(regex.replace(lower(text), `[^a-z0-9]+`, " "), " ") if is_string(text)

deleting if {
	is_string(input.action.name)
	lower(input.action.name) == "delete"
}

deleting if {
	is_string(input.action.method)
	upper(input.action.method) == "DELETE"
}

destinations contains place(input.context.destination_region)

destinations contains place(input.context.region)

destinations contains place(input.user.attributes.region)

place(name) := lower(trim_space(name)) if {
	is_string(name)
	trim_space(name) != ""
}

region_permitted(region) if region in gdpr_regions

# A cloud's region, such as eu-west-1.
region_permitted(region) if startswith(region, "eu-")

holds(roles) if {
	identified
	some role in input.user.roles
	is_string(role)
	some permitted in roles
	lower(role) == lower(permitted)
}

identified if {
	is_string(input.user.id)
	not lower(trim_space(input.user.id)) in {"", "anonymous"}
}

identified if is_number(input.user.id)

# An empty list or object that is written out has a type that OPA does not let one go through.
items(list) := list
