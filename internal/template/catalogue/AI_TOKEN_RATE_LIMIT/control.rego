# Holds callers of a model or an agent to budgets of tokens and requests. The
# counts come from the enforcement point (input.usage, this request not yet in
# them), the budget from the resource's enrichment (input.resource.sla_tier) at
# every decision. A request that cannot be counted is refused.
package templates.ai_token_rate_limit

# Parameter: the tier that counts while the resource has none.
sla_tier := "silver"

# Parameter: tokens of one caller by tier.
tokens := {
	"gold": {"minute": 60000, "hour": 1000000, "day": 10000000},
	"silver": {"minute": 30000, "hour": 500000, "day": 4000000},
	"bronze": {"minute": 10000, "hour": 150000, "day": 1000000},
}

# Parameter: requests of one caller by tier.
requests := {
	"gold": {"minute": 120, "hour": 3000, "day": 30000},
	"silver": {"minute": 60, "hour": 1500, "day": 15000},
	"bronze": {"minute": 20, "hour": 500, "day": 5000},
}

# Parameter: what all callers of the resource together may use, and what all calls through
# one agent may use, in budgets of a caller.
shared := {"resource": 50, "agent": 5}

# Parameter: the most tokens of one request, its answer (max_tokens) included.
tokens_per_request := 16000

# Parameter: roles without a budget.
exempt_roles := []

allow if count(deny) == 0

deny contains sprintf("What is sent to the model cannot be looked at: %v", [unreadable]) if {
	metered
	unreadable
}

deny contains "The request's size is not known, so its tokens cannot be counted" if {
	metered
	not unreadable
	not needed
}

deny contains "The caller's use is not known, so the budget cannot be held" if {
	metered
	not counted_at_all
}

deny contains "The caller's use is not known, so the budget cannot be held" if {
	not exempt
	some kind in ["tokens", "requests"]
	some n in input.usage[kind]
	not is_number(n)
}

deny contains "What is shared is not known, so the budget cannot be held" if {
	metered
	some whose, _ in items(shared)
	some n in input.usage[whose].tokens
	not is_number(n)
}

deny contains sprintf("The request and its answer need about %v tokens: more than %v", [whole, tokens_per_request]) if {
	metered
	whole > tokens_per_request
}

deny contains sprintf(
	"The token budget of this %s is used up: %v of %v are used, the request needs about %v. It is renewed next %s",
	[window, used, budget, needed, window],
) if {
	metered
	some window, budget in items(tokens)[tier]
	used := counted(input.usage.tokens, window)
	used + needed > budget
}

deny contains sprintf("The request budget of this %s is used up: %v of %v", [window, used, budget]) if {
	not exempt
	some window, budget in items(requests)[tier]
	used := counted(input.usage.requests, window)
	used + 1 > budget
}

deny contains sprintf("The token budget that this %s shares is used up for this %s", [whose, window]) if {
	metered
	some whose, times in items(shared)
	some window, budget in items(tokens)[tier]
	counted(input.usage[whose].tokens, window) + needed > budget * times
}

reason := sprintf("Within the %s token budget: about %v for this request", [tier, needed]) if {
	metered
	count(deny) == 0
}

unreadable := object.get(input.llm, "reason", "no reason is given") if input.llm.unreadable == true

metered if {
	is_object(input.llm)
	not exempt
}

tier := input.resource.sla_tier if items(tokens)[input.resource.sla_tier]

tier := sla_tier if not tier_set

tier_set if items(tokens)[input.resource.sla_tier]

counted_at_all if is_object(input.usage.tokens)

# Tokens of the prompt, as the enforcement point estimates them.
needed := input.llm.estimated_tokens if {
	is_number(input.llm.estimated_tokens)
	input.llm.estimated_tokens >= 0
}

whole := needed + answer

default answer := 0

answer := input.llm.max_tokens if {
	is_number(input.llm.max_tokens)
	input.llm.max_tokens >= 0
}

# What is not counted yet is 0.
counted(counts, window) := n if {
	is_object(counts)
	n := object.get(counts, window, 0)
	is_number(n)
}

exempt if {
	identified
	some role in input.user.roles
	is_string(role)
	some permitted in items(exempt_roles)
	lower(role) == lower(permitted)
}

identified if {
	is_string(input.user.id)
	not lower(trim_space(input.user.id)) in {"", "anonymous"}
}

identified if is_number(input.user.id)

# An empty list or object that is written out has a type that OPA does not let one go through.
items(list) := list
