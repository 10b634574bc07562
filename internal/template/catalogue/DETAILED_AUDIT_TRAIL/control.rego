# Sees to it that what a detailed or comprehensive audit records can be traced:
# every request has a person or a program behind it, and, where the audit is
# comprehensive, not a shared account. The reason of every decision says who did
# what to which. The level comes from the resource's enrichment
# (input.resource.audit_level) at every decision.
package templates.detailed_audit_trail

# Parameter: the level while the resource names none.
audit_level := "detailed"

# Parameter: accounts that are shared and so name nobody.
shared_accounts := ["root", "guest", "shared", "test", "generic", "nobody", "anonymous"]

# Parameter: whether a request needs an id by which it is found again (a bouncer always gives one).
request_id_needed := true

allow if count(deny) == 0

deny contains "The audit of this resource needs a caller with an identity" if not identified

deny contains sprintf("The audit of this resource needs a person: %q is a shared account", [account]) if {
	level == "comprehensive"
	account in shared_accounts
}

deny contains "The audit of this resource needs a request id" if {
	request_id_needed
	level in {"detailed", "comprehensive"}
	not traceable
}

reason := sprintf("Audited (%s): %v did %s on %s as request %v", [
	level, input.user.id, action, what, input.context.request_id,
]) if {
	count(deny) == 0
	traceable
}

reason := sprintf("Audited (%s): %v did %s on %s", [level, input.user.id, action, what]) if {
	count(deny) == 0
	not traceable
}

levels := {"none", "basic", "detailed", "comprehensive"}

level := input.resource.audit_level if input.resource.audit_level in levels

level := audit_level if not level_set

level_set if input.resource.audit_level in levels

# The part before an @, in lower case: root@host is root.
account := split(lower(trim_space(input.user.id)), "@")[0] if is_string(input.user.id)

default action := "something"

action := input.action.name if is_string(input.action.name)

default what := "a resource without a name"

what := input.resource.path if is_string(input.resource.path)

traceable if {
	is_string(input.context.request_id)
	trim_space(input.context.request_id) != ""
}

identified if {
	is_string(input.user.id)
	not account in {"", "anonymous"}
}

identified if is_number(input.user.id)
