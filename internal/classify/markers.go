package classify

// marker is one piece of evidence. Each of its texts means the same.
type marker struct {
	raw   []string // fixed substrings
	words []string // whole words, with any characters between them
	paths []string // path segments, see hasPath
}

// choice is a value and its markers. One of them is enough.
type choice struct {
	value   string
	markers []marker
}

// kindMarkers returns the markers of kinds in the order of the specification. The first kind that
// matches wins.
func kindMarkers() []choice {
	return []choice{
		{LLMEndpoint, []marker{
			{raw: []string{"chat/completion", "/completions", "anthropic.com/v1/messages"}, words: []string{"chat completion", "chat completions", "chatcompletion", "chatcompletions"}},
			{raw: []string{"bedrock-runtime"}, words: []string{"inference"}, paths: []string{"/infer", "/inference"}},
			{raw: []string{"generatecontent", "generate_stream"}, paths: []string{"/generate"}},
		}},
		{MCPServer, []marker{
			{raw: []string{"mcp"}},
			{raw: []string{"modelcontextprotocol"}, words: []string{"model context protocol"}},
			{raw: []string{"tools/call", "tools/list"}},
		}},
		{Agent, []marker{
			{raw: []string{"agentic"}, words: []string{"agent", "agents"}, paths: []string{"/agent"}},
			{raw: []string{"copilot"}},
		}},
		{RAGIndex, []marker{
			{words: []string{"rag"}, paths: []string{"/rag"}},
			{raw: []string{"retrieval"}, paths: []string{"/retrieve"}},
			{raw: []string{"vector"}},
		}},
	}
}

// providerMarkers returns the markers of providers. Those of hosts come before those of models,
// because Azure serves OpenAI's models, and AWS and Google serve those of others.
func providerMarkers() []choice {
	return []choice{
		{"azure", []marker{{raw: []string{"azure"}}}},
		{"aws", []marker{{raw: []string{"bedrock", "amazonaws", "sagemaker"}, words: []string{"aws"}}}},
		{"google", []marker{{raw: []string{"googleapis", "generativelanguage", "vertex", "gemini"}, words: []string{"google"}}}},
		{"self_hosted", []marker{{raw: []string{"ollama", "vllm", "llama.cpp", "localhost"}, words: []string{"self hosted", "selfhosted", "lm studio", "text generation inference"}}}},
		{"openai", []marker{{raw: []string{"openai", "chatgpt"}}}},
		{"anthropic", []marker{{raw: []string{"anthropic", "claude"}}}},
	}
}

// familyMarkers returns the markers of model families, the most specific first.
func familyMarkers() []choice {
	var out []choice
	for _, name := range []string{"gpt-5", "gpt-4", "gpt-3.5", "gpt", "claude", "gemini", "gemma", "mixtral", "mistral", "qwen", "deepseek", "command-r", "codestral"} {
		value := name + "-*"
		if name[len(name)-1] >= '0' && name[len(name)-1] <= '9' {
			value = name + "*" // gpt-4o, gpt-4.1
		}
		m := marker{raw: []string{name}}
		if name == "gpt" {
			m = marker{raw: []string{"gpt-"}, words: []string{"gpt"}}
		}
		out = append(out, choice{value, []marker{m}})
	}
	// The words are matched whole, because ollama and llama.cpp are programs, not models.
	llama := marker{words: []string{"llama", "llama2", "llama3", "llama4"}, raw: []string{"llama-2", "llama-3", "llama-4"}}
	return append(out, choice{"llama-*", []marker{llama}})
}

// protocolMarkers returns the markers of the published versions of the protocol.
func protocolMarkers() []choice {
	var out []choice
	for _, v := range protocolVersions() {
		out = append(out, choice{v, []marker{{raw: []string{v}}}})
	}
	return out
}

// protocolVersions returns the versions of the Model Context Protocol, newest first.
func protocolVersions() []string {
	return []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

func capabilityMarkers() []choice {
	return []choice{
		{"tool_use", []marker{{raw: []string{"tools/call", "tool_use", "tool-use"}, paths: []string{"/tool"}}}},
		{"code_exec", []marker{{words: []string{"code execution", "code interpreter"}, paths: []string{"/run", "/exec", "/execute", "/execution"}}}},
		{"file_io", []marker{{paths: []string{"/upload", "/file", "/download"}}}},
		{"web_browse", []marker{{words: []string{"web browsing"}, paths: []string{"/browse", "/browser"}}}},
		{"memory", []marker{{paths: []string{"/memory", "/memories"}}}},
	}
}

func piiMarkers() []choice {
	return []choice{
		{"names", []marker{{
			raw:   []string{"firstname", "lastname", "fullname"},
			words: []string{"first name", "last name", "full name", "first names", "last names", "full names", "surname", "surnames", "customer names"},
		}}},
		{"emails", []marker{{raw: []string{"email"}, words: []string{"e mail", "e mails"}}}},
		{"ssn", []marker{{raw: []string{"socialsecurity"}, words: []string{"ssn", "ssns", "social security"}}}},
		{"card_numbers", []marker{{
			raw:   []string{"cardnumber", "creditcard", "debitcard", "cardholder"},
			words: []string{"card", "cards"},
		}}},
		{"health_records", []marker{{
			raw:   []string{"medical", "healthrecord"},
			words: []string{"health record", "health records", "patient", "patients", "diagnosis", "diagnoses", "prescription", "prescriptions", "clinical"},
		}}},
		{"addresses", []marker{{
			words: []string{"postal", "home address", "home addresses", "street address", "street addresses", "billing address", "billing addresses", "shipping address", "shipping addresses", "mailing address", "mailing addresses"},
			paths: []string{"/address", "/addresses"},
		}}},
	}
}

// regimeMarkers returns the names of regulations.
func regimeMarkers() []choice {
	return []choice{
		{"GDPR", []marker{{raw: []string{"gdpr"}}}},
		{"HIPAA", []marker{{raw: []string{"hipaa"}}}},
		{"PCI-DSS", []marker{{words: []string{"pci", "pci dss", "pcidss"}}}},
		{"SOX", []marker{{words: []string{"sox", "sarbanes oxley"}}}},
	}
}
