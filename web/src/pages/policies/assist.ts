import type { CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { client, must, type Schemas } from "../../api/client";
import { offsetOf, placeOf } from "../../editor/places";

type Issue = Schemas["RegoIssue"];

/** What is wrong with a control as it is typed, 250 ms after the last key. Replies that are overtaken are dropped. */
export function useDiagnostics(code: string): {
  issues: Issue[];
  valid: boolean | undefined;
  checking: boolean;
  error: unknown;
} {
  const [asked] = useDebouncedValue(code, 250);
  const check = useQuery({
    queryKey: ["validate", asked],
    queryFn: async ({ signal }) =>
      must(await client.POST("/api/v1/policies/validate", { body: { rego_code: asked }, signal })),
    enabled: asked.trim() !== "",
    staleTime: 60_000,
    gcTime: 60_000,
    placeholderData: (before) => before,
  });
  return {
    issues: [...(check.data?.errors ?? []), ...(check.data?.warnings ?? [])],
    valid: check.data?.valid,
    checking: check.isFetching || asked !== code,
    error: check.error,
  };
}

const kinds: Record<string, string> = {
  function: "function",
  keyword: "keyword",
  input: "property",
  data: "property",
  rule: "variable",
};

/** What may be typed at the cursor: attributes of the input, data, functions, keywords, the control's own rules. */
export async function complete(context: CompletionContext): Promise<CompletionResult | null> {
  const word = context.matchBefore(/[\w.]+/);
  if (!word && !context.explicit) return null;
  const doc = context.state.doc;
  const answer = await client
    .POST("/api/v1/ide-integration/editor-b", {
      body: { action: "get_suggestions", policy_content: doc.toString(), position: placeOf(doc, context.pos) },
    })
    .catch(() => null);
  const found = answer?.data?.completions;
  const first = found?.[0];
  if (!found || !first || context.aborted) return null;
  return {
    from: offsetOf(doc, first.range.start.line, first.range.start.column),
    options: found.map((c) => ({
      label: c.label,
      apply: c.insert_text,
      detail: c.detail,
      info: c.documentation,
      type: kinds[c.kind] ?? "text",
    })),
    validFor: /^[\w.]*$/,
  };
}

/** The control as `opa fmt` lays it out; null where it does not parse. */
export async function format(code: string): Promise<string | null> {
  const answer = must(
    await client.POST("/api/v1/ide-integration/editor-b", { body: { action: "format", policy_content: code } }),
  );
  return answer.formatted ?? null;
}

const explained = new Map<string, string>();

/** What a name means: a built-in function's signature and text, an attribute's type and meaning. */
export async function hover(word: string): Promise<string> {
  const known = explained.get(word);
  if (known !== undefined) return known;
  const text = `package hover\n\nx := ${word}`;
  const answer = await client
    .POST("/api/v1/ide-integration/editor-b", {
      body: {
        action: "get_suggestions",
        policy_content: text,
        position: { line: 3, column: 6 + word.length },
      },
    })
    .catch(() => null);
  const found = answer?.data?.completions?.find((c) => c.label === word);
  const says = found ? [found.detail, found.documentation].filter(Boolean).join("\n\n") : "";
  explained.set(word, says);
  return says;
}

/** Changes that would mend what is wrong. */
export async function fixes(code: string): Promise<Schemas["IdeFix"][]> {
  const answer = must(
    await client.POST("/api/v1/ide-integration/editor-b", {
      body: { action: "get_suggestions", policy_content: code },
    }),
  );
  return answer.fixes ?? [];
}
