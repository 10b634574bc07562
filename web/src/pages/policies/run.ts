import { client, type Environment, must, type Schemas } from "../../api/client";
import type { Tints } from "../../editor/Editor";

/** A step of the way to a decision, as the workbench lists it. */
export interface Step {
  line: number;
  source: string;
  held: boolean;
  values: [string, unknown][];
}

/** What came of one run. */
export interface Outcome {
  effect: string;
  /** Why, in one sentence. */
  reason: string;
  /** The longer explanation, in the server's words. */
  text: string;
  explanation?: Schemas["RegoExplanation"];
  steps: Step[];
  notes: string[];
  error?: string;
  ms: number;
  output?: unknown;
  /** Whether the stored control ran, with a trace; else the text of the editor, without. */
  traced: boolean;
}

interface Details {
  line?: number;
  source?: string;
  values?: Record<string, unknown>;
}

/** The conditions of a trace, in order. */
export function stepsOf(trace: Schemas["RegoStep"][]): Step[] {
  return trace
    .filter((s) => s.step_type === "condition_eval")
    .map((s) => {
      const details = (s.details ?? {}) as Details;
      return {
        line: details.line ?? 0,
        source: details.source ?? s.description,
        held: s.result,
        values: Object.entries(details.values ?? {}),
      };
    });
}

/** Which lines of the editor to colour: conditions by whether they held, the line that decided last. */
export function tintsOf(outcome: Outcome | null): Tints {
  const tints: Tints = {};
  if (!outcome) return tints;
  for (const step of outcome.steps) if (step.line > 0) tints[step.line] = step.held ? "held" : "failed";
  const decided = outcome.explanation?.line;
  if (decided && !tints[decided]) tints[decided] = "decided";
  return tints;
}

/** Runs the stored control over an input, with a trace. */
export async function runStored(
  id: number,
  environment: Environment,
  input: Record<string, unknown>,
): Promise<Outcome> {
  const result = must(
    await client.POST("/api/v1/pis/policies/{policy_id}/simulate", {
      params: { path: { policy_id: id }, query: { environment } },
      body: { input_json: input, test_type: "manual" },
    }),
  );
  return outcomeOf(result);
}

/** What came of a simulation, as the screens show it. */
export function outcomeOf(result: Omit<Schemas["SimulatorResult"], "simulation_id" | "checksum">): Outcome {
  return {
    effect: result.decision,
    reason: result.reason,
    text: result.explanation?.text ?? "",
    explanation: result.explanation,
    steps: stepsOf(result.trace),
    notes: result.notes,
    error: result.error,
    ms: result.execution_time_ms,
    output: result.output_json,
    traced: true,
  };
}

/** The conditions that an explanation in words names: "  line 8: source  (values)". */
export function stepsOfText(text: string, allowed: boolean): Step[] {
  const found: Step[] = [];
  for (const line of text.split("\n")) {
    const match = /^\s+\S+ (\d+): (.*?)(?:\s{2}\((.*)\))?$/.exec(line);
    if (match) found.push({ line: Number(match[1]), source: match[2] ?? "", held: allowed, values: [] });
  }
  return found;
}

/** Runs the text of the editor, which is not stored, over an input: the same evaluation, without a trace. */
export async function runText(code: string, input: Record<string, unknown>): Promise<Outcome> {
  const manifest = { name: "control", tests: [{ name: "run", input, expected: true }] };
  const report = must(
    await client.POST("/api/v1/policies-as-code/test", {
      body: {
        files: [
          { path: "control/control.rego", content: code },
          // JSON is YAML.
          { path: "control/gatehouse.yaml", content: JSON.stringify(manifest) },
        ],
      },
    }),
  );
  const result = report.cases[0]?.result;
  if (!result) {
    const first = report.errors[0];
    return {
      effect: "",
      reason: "",
      text: "",
      steps: [],
      notes: [],
      error: first ? `${first.line}: ${first.message}` : "",
      ms: 0,
      traced: false,
    };
  }
  return {
    effect: result.effect,
    reason: result.reason,
    text: result.why ?? "",
    steps: stepsOfText(result.why ?? "", result.actual),
    notes: [],
    error: result.error,
    ms: result.evaluation_time_ms,
    traced: false,
  };
}

/** The input as an object, or what is wrong with its text. */
export function parseInput(text: string): { input?: Record<string, unknown>; error?: string } {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return { error: "{}" };
    return { input: value as Record<string, unknown> };
  } catch (failure) {
    return { error: failure instanceof Error ? failure.message : String(failure) };
  }
}

/** The input of a recorded decision, as the controls saw it. Nothing is stored for it. */
export async function inputOfDecision(
  policyId: number,
  environment: Environment,
  decisionId: string,
): Promise<Record<string, unknown> | null> {
  const made = must(
    await client.POST("/api/v1/policies/{policy_id}/test-cases/from-decisions", {
      params: { path: { policy_id: policyId }, query: { environment } },
      body: { decision_ids: [decisionId], dry_run: true },
    }),
  );
  return (made.test_cases.at(-1)?.input as Record<string, unknown> | undefined) ?? null;
}
