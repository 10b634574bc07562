# Looks at what goes into a model or an agent: who asks, which model, how large,
# whether the prompt holds secrets or refused terms. Which provider and model
# family are meant comes from the resource's enrichment (input.resource.ai_provider,
# ai_model_family) at every decision. Where a confidential or restricted resource
# lies with a hosted provider, personal data is hidden in the prompt itself.
package templates.ai_ingress_guardrail

# Parameter: the model family (wildcards: llama-*) that counts while the resource names none.
ai_model_family := "*"

# Parameter: where the model runs while the resource does not say.
ai_provider := "self_hosted"

# Parameter: models, as glob patterns, that are refused even so.
refused_models := []

# Parameter: the largest prompt, in tokens as estimated.
max_prompt_tokens := 32000

# Parameter: the longest answer that may be asked for, in tokens.
max_answer_tokens := 8192

# Parameter: the most messages in one request.
max_messages := 200

# Parameter: terms, in lower case, that a prompt may not hold, such as a project's code name.
refused_terms := []

# Parameter: what is hidden in prompts to a hosted provider, beside the resource's pii_categories.
hidden_categories := ["card_numbers", "ssn"]

# Parameter: paths that take a body without a prompt.
paths_without_prompt := ["/v1/embeddings", "/v1/files", "/v1/moderations"]

allow if count(deny) == 0

deny contains "A model is asked only by callers with an identity" if not identified

deny contains sprintf("What is sent to the model cannot be looked at: %v", [unreadable]) if unreadable

deny contains "The request holds no prompt that could be looked at" if {
	input.resource.resource_kind == "llm_endpoint"
	sending
	not has_prompt
	not promptless
}

deny contains sprintf("The model %v is not of the family %s", [model, family]) if {
	is_object(input.llm)
	not unreadable
	not promptless
	not modelless
	model := object.get(input.llm, "model", "without a name")
	not model_permitted
}

deny contains sprintf("The prompt has about %v tokens, and %v is the most", [size, max_prompt_tokens]) if {
	size := input.llm.estimated_tokens
	is_number(size)
	size > max_prompt_tokens
}

deny contains sprintf("The answer may have at most %v tokens, and %v are asked for", [max_answer_tokens, size]) if {
	size := input.llm.max_tokens
	is_number(size)
	size > max_answer_tokens
}

deny contains sprintf("The request has more than %v messages", [max_messages]) if count(messages) > max_messages

deny contains sprintf("The prompt holds a secret (%s)", [secret.name]) if {
	some text in texts
	some secret in secrets
	contains(text, secret.sign)
	regex.match(secret.pattern, text)
}

deny contains "The prompt holds a term that is refused" if {
	some text in texts
	some term in items(refused_terms)
	contains(lower(text), lower(term))
}

mask[sprintf("request:pii:%s", [category])] := "redact" if {
	is_object(input.llm)
	not unreadable
	hosted
	input.resource.data_classification in {"confidential", "restricted"}
	some category in hidden
}

reason := "Personal data is hidden in the prompt" if {
	count(mask) > 0
	count(deny) == 0
}

reason := "The prompt passed the guardrail" if {
	is_object(input.llm)
	count(mask) == 0
	count(deny) == 0
}

sending if {
	is_string(input.action.method)
	upper(input.action.method) in {"POST", "PUT", "PATCH"}
}

has_prompt if is_object(input.llm)

unreadable := object.get(input.llm, "reason", "no reason is given") if input.llm.unreadable == true

# An agent chooses its model itself.
modelless if {
	input.resource.resource_kind == "agent"
	object.get(input.llm, "model", "") == ""
}

promptless if input.resource.path in paths_without_prompt

hosted if provider != "self_hosted"

provider := input.resource.ai_provider if is_string(input.resource.ai_provider)

provider := ai_provider if not provider_set

provider_set if is_string(input.resource.ai_provider)

family := input.resource.ai_model_family if is_string(input.resource.ai_model_family)

family := ai_model_family if not family_set

family_set if is_string(input.resource.ai_model_family)

# The model's name is matched as a whole: gpt-4* is gpt-4 and gpt-4o, not my-gpt-4.
model_permitted if {
	is_string(input.llm.model)
	glob.match(wild(family), null, lower(input.llm.model))
	not refused
}

refused if {
	some pattern in items(refused_models)
	glob.match(lower(pattern), null, lower(input.llm.model))
}

# Only * and ? are wild: what else a hint holds stands for itself.
wild(text) := strings.replace_n({"[": "\\[", "]": "\\]", "{": "\\{", "}": "\\}", "\\": "\\\\", "!": "\\!"}, lower(text))

default messages := []

messages := input.llm.messages if is_array(input.llm.messages)

# All texts of the messages, as they were sent and in plain letters.
texts contains text if {
	some message in messages
	walk(message, [path, text])
	is_string(text)
	not media(path, text)
}

texts contains said.text if {
	some said in input.llm.texts
	is_string(said.text)
}

# Media are left out where providers put them, and if they are well-formed: base64 of a picture,
# a sound or a document, or an address on the web. An enforcement point leaves them out itself.
media(path, text) if {
	media_place(path)
	regex.match(`^data:(?:image/(?:png|jpe?g|gif|webp|bmp|tiff)|(?:audio|video)/[a-z0-9.+-]+|application/pdf);`, text)
	regex.match(`^[a-z0-9:/.+-]+;base64,[A-Za-z0-9+/]+=?=?$`, text)
}

media(path, text) if {
	media_place(path)
	count(text) < 2048
	regex.match(`^https?://[A-Za-z0-9][A-Za-z0-9.:-]*(?:[/?][A-Za-z0-9._~:/?#@!$&'()*+,;=%\[\]-]*)?$`, text)
}

media_place(path) if path[count(path) - 1] in {"image_url", "file_data", "file_url", "audio_url", "video_url"}

media_place(path) if {
	path[count(path) - 1] in {"url", "data"}
	path[count(path) - 2] in {"image_url", "source", "input_audio", "audio_url", "video_url", "inline_data", "inlineData"}
}

hidden contains category if some category in items(hidden_categories)

hidden contains category if {
	some category in input.resource.pii_categories
	category in {"names", "emails", "ssn", "card_numbers", "health_records", "addresses"}
}

# A sign that is quickly looked for, then the pattern. Repetitions are written out: counted ones
# make a pattern large, and large patterns are slow on long prompts.
secrets := [
	{"name": "a cloud access key", "sign": "AKIA", "pattern": `\bAKIA[0-9A-Z][0-9A-Z][0-9A-Z][0-9A-Z][0-9A-Z][0-9A-Z]+`},
	{"name": "a cloud access key", "sign": "ASIA", "pattern": `\bASIA[0-9A-Z][0-9A-Z][0-9A-Z][0-9A-Z][0-9A-Z][0-9A-Z]+`},
	{"name": "an API key", "sign": "AIza", "pattern": `\bAIza[\w-][\w-][\w-][\w-][\w-][\w-][\w-][\w-][\w-][\w-]+`},
	{"name": "an API key", "sign": "sk-", "pattern": `\bsk-[\w-]*[0-9][\w-]*[A-Z][\w-][\w-][\w-][\w-][\w-][\w-][\w-]+`},
	{"name": "an API key", "sign": "sk_live_", "pattern": `\bsk_live_\w\w\w\w\w\w\w\w\w\w+`},
	{"name": "an API key", "sign": "gh_", "pattern": `\bgh_(?:sandbox|production|tenant)_\w\w\w\w\w\w\w\w\w\w+`},
	{"name": "an access token", "sign": "ghp_", "pattern": `\bghp_\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w\w+`},
	{"name": "an access token", "sign": "github_pat_", "pattern": `\bgithub_pat_\w\w\w\w\w\w\w\w\w\w+`},
	{"name": "an access token", "sign": "glpat-", "pattern": `\bglpat-[\w-][\w-][\w-][\w-][\w-][\w-][\w-][\w-]+`},
	{"name": "an access token", "sign": "xox", "pattern": `\bxox[abprs]-[0-9]+-[\w-]+`},
	{"name": "a signed token", "sign": "eyJ", "pattern": `\beyJ[\w-]+\.eyJ[\w-]+\.[\w-]+`},
	{"name": "a private key", "sign": "PRIVATE KEY", "pattern": `-----BEGIN [A-Z ]*PRIVATE KEY-----`},
]

identified if {
	is_string(input.user.id)
	not lower(trim_space(input.user.id)) in {"", "anonymous"}
}

identified if is_number(input.user.id)

# An empty list or object that is written out has a type that OPA does not let one go through.
items(list) := list
