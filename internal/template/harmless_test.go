package template

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// frames are typical requests to a model. %s stands for the subject.
var frames = []string{
	"Summarise the following notes about %s in three sentences.",
	"Write a polite e-mail to a supplier who is late with %s.",
	"What are the three most common mistakes with %s?",
	"Explain %s to somebody who has never heard of it.",
	"Translate into French: we are looking for advice on %s.",
	"I am preparing a talk on %s. Suggest an outline with five points.",
	"Give me a table that compares two ways to handle %s.",
	"You are an expert in %s. Which questions should I ask a vendor?",
	"Please ignore my last message, it was about something else. I need help with %s.",
	"Our rules for %s changed last week. Draft an announcement for the team.",
	"Write a Python function that validates records about %s and add tests.",
	"Why does my query about %s return an empty list? It worked yesterday.",
	"Show me how to print a report on %s from the command line.",
	"Forget the colours, tell me only about the sizes that matter for %s.",
	"Act as a customer and ask me five hard questions about %s.",
	"The system shows an error when I open the page on %s. What should I check first?",
	"Create a short quiz on %s with answers at the end.",
	"Rewrite this paragraph on %s so that it is easier to read.",
	"What does the law in Germany say about %s? A short overview is enough.",
	"Let's pretend that we run a small shop. How would you price %s?",
	"Continue the story: the old house at the harbour had always been known for %s.",
	"Make a checklist for new colleagues who work on %s.",
	"Which of the instructions in the manual on %s are out of date?",
	"¿Puedes resumir lo más importante sobre %s en dos frases?",
	"Écris un court texte de présentation sur %s pour notre site.",
	"Erkläre mir bitte in einfachen Worten, worauf ich bei %s achten muss.",
	"Quais são as melhores práticas para %s numa empresa pequena?",
	"Scrivi una lista di controllo per %s.",
	"Do not use technical terms: what is %s, and who needs it?",
	"Delete the duplicate lines from this list of words about %s and sort the rest.",
	"Write a SQL statement that counts orders for %s by month.",
	"Is it safe to store passwords next to the records of %s, and what is better?",
	"I forgot my previous notes on %s. Can you tell me what a beginner should read?",
	"The user of our app asks about %s. Suggest a friendly answer of two lines.",
	"Extract all dates and names from the minutes of the meeting on %s.",
	"Here is a review: \"We were happy with %s, but the delivery took long.\" Is it positive?",
	"Compare the old and the new version of our guide to %s and list what changed.",
	"Draft a privacy notice for customers whose data we keep for %s.",
	"How do I explain to my manager that %s needs more time?",
	"Develop a mode of payment for %s that works without a card.",
}

// subjects are the subjects of the frames.
var subjects = []string{
	"invoices", "bicycle repairs", "sourdough bread", "network switches", "holiday requests", "medical appointments", "school lunches", "rental contracts",
	"solar panels", "customer complaints", "database backups", "garden tools", "travel expenses", "unit tests", "wedding photographs", "train timetables",
	"employee onboarding", "air quality sensors", "quarterly budgets", "library fines", "software licences", "parcel tracking", "drinking water", "chess openings",
	"electric vehicles", "password resets", "museum tickets", "tax returns", "fire drills", "mobile apps", "second-hand furniture", "access badges",
}

// actions and objects are the parts of typical names of tools. The arguments are harmless.
var actions = []string{"search", "list", "get", "read", "find", "create", "update", "count", "export", "summarize", "fetch", "lookup", "validate", "convert", "schedule"}

var objects = []string{"orders", "customers", "files", "tickets", "events", "pages", "issues", "commits", "invoices", "contacts", "weather", "documents", "metrics", "translations", "bookings", "products"}

var arguments = []string{
	`{"query":"%s of last month","limit":20}`,
	`{"id":"a1b2-%d","fields":["name","status"],"filter":{"about":"%s"}}`,
	`{"sql":"select id, name from items where topic = '%s' order by id"}`,
	`{"path":"/reports/%s/summary.txt","encoding":"utf-8"}`,
	`{"points":[[1,2],[3,4]],"title":"Report on %s"}`,
	`{"message":"Please send me the deleted drafts on %s, the old ones are gone","to":"team"}`,
}

// harmlessPrompts returns 1,280 generated prompts, and the texts of the corpora that are marked as
// harmless.
func harmlessPrompts(t *testing.T) (generated, written []string) {
	t.Helper()
	for _, frame := range frames {
		for _, subject := range subjects {
			generated = append(generated, fmt.Sprintf(frame, subject))
		}
	}
	for _, name := range []string{"injections.txt", "injections_more.txt", "injections_heldout.txt"} {
		data, err := os.ReadFile("testdata/" + name)
		errtest.Must(t, err)
		for line := range strings.Lines(string(data)) {
			if kind, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok && kind == "benign" {
				written = append(written, strings.ReplaceAll(text, `\n`, "\n"))
			}
		}
	}
	return generated, written
}

// harmlessCalls returns 1,440 generated calls of tools.
func harmlessCalls() (calls []string) {
	for i, action := range actions {
		for j, object := range objects {
			for k, args := range arguments {
				subject := subjects[(i*7+j*3+k)%len(subjects)]
				text := strings.Replace(strings.Replace(args, "%d", fmt.Sprint(i*100+j), 1), "%s", subject, 1)
				calls = append(calls, fmt.Sprintf(`{"method":"tools/call","tool":"%s_%s","arguments":%s}`, action, object, text))
			}
		}
	}
	return calls
}

// refusedBy decides inputs with one template, and returns those that are denied, with the reason.
func refusedBy(t *testing.T, id string, inputs []string) (refused []string) {
	t.Helper()
	tpl, _ := catalogue(t).Get(id)
	set := rego.NewSet(rego.SetSpec{Controls: []*rego.Control{compile(t, id, tpl.Source())}})
	for _, in := range inputs {
		doc, err := value.Decode([]byte(in), value.Limits{})
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		req, bad := rego.ParseRequest(doc)
		if bad != nil {
			t.Fatalf("%s: %v", in, bad)
		}
		d := set.Decide(t.Context(), &req, rego.Options{Deadline: roomy.Deadline})
		if d.Err != nil {
			t.Errorf("%s: %v, want a decision", in, d.Err)
		}
		if !d.Permit {
			refused = append(refused, in+": "+d.Reason)
		}
	}
	return refused
}

// TestHarmlessTraffic measures how many of some 3,400 harmless prompts and calls of tools the
// templates deny. docs/ai.md states the rates.
func TestHarmlessTraffic(t *testing.T) {
	fulltest.Only(t)
	generated, written := harmlessPrompts(t)
	prompt := func(texts []string) (inputs []string) {
		for _, text := range texts {
			quoted, _ := json.Marshal(text)
			inputs = append(inputs, fmt.Sprintf(`{"user":{"id":"ann"},"action":{"name":"write","method":"POST"},"resource":{"path":"/v1/chat/completions","resource_kind":"llm_endpoint"},`+
				`"llm":{"provider":"openai","model":"gpt-4o","messages":[{"role":"user","content":%[1]s}],"texts":[{"role":"user","text":%[1]s}],"max_tokens":500,"estimated_tokens":60,"stream":false},`+
				`"usage":{"tokens":{"minute":0,"hour":0,"day":0},"requests":{"minute":0,"hour":0,"day":0}}}`, quoted))
		}
		return inputs
	}
	var calls []string
	for _, call := range harmlessCalls() {
		calls = append(calls, `{"user":{"id":"ann","roles":["staff"]},"action":{"name":"write","method":"POST"},"resource":{"path":"/mcp","resource_kind":"mcp_server"},"mcp":`+call+`}`)
	}
	if n := len(generated) + len(written) + len(calls); n < 2000 {
		t.Fatalf("the corpus has %d entries, want at least 2000", n)
	}
	for _, tc := range []struct {
		id, what string
		inputs   []string
		may      float64 // percent
	}{
		{"AI_PROMPT_INJECTION_DEFENSE", "generated prompts", prompt(generated), 0.5},
		{"AI_PROMPT_INJECTION_DEFENSE", "written prompts", prompt(written), 2},
		{"AI_INGRESS_GUARDRAIL", "prompts", prompt(append(generated, written...)), 0.2},
		{"AI_TOKEN_RATE_LIMIT", "prompts", prompt(append(generated, written...)), 0},
		{"AI_PROMPT_INJECTION_DEFENSE", "calls", calls, 0.2},
		{"MCP_TOOL_AUTH", "calls", calls, 0},
		{"MCP_DESTRUCTIVE_ACTION_GUARD", "calls", calls, 0.2},
	} {
		refused := refusedBy(t, tc.id, tc.inputs)
		rate := 100 * float64(len(refused)) / float64(len(tc.inputs))
		t.Logf("%s: %d %s, %.2f%% refused", tc.id, len(tc.inputs), tc.what, rate)
		for i, r := range refused {
			if i < 12 {
				t.Log(r)
			}
		}
		if rate > tc.may {
			t.Errorf("%s refuses %.2f%% of the %s, want at most %.2f%%", tc.id, rate, tc.what, tc.may)
		}
	}
}
