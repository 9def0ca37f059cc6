import type { RunInFull, StepView } from "../../lib/runs.ts";

/** As code takes it: U+2028 and U+2029 stand in JSON as they are, and would end a line. */
const json = (value: unknown, indent = ""): string =>
  (JSON.stringify(value ?? null, null, 2) ?? "null")
    .replaceAll("\n", `\n${indent}`)
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");

/** What a step or a wait gave, as the test says it. */
interface AnswerText {
  method: "mockStep" | "mockInvoke" | "on" | "signal" | "stream" | "key";
  name: string;
  text: string;
}

function thrown({ error }: StepView): string {
  const { message = "", code = "", retryable = true } = error ?? {};
  const about = code === "" ? "" : `, { code: ${json(code)} }`;
  return retryable
    ? `() => { throw Object.assign(new Error(${json(message)})${about}); }`
    : `() => { throw new NonRetryableError(${json(message)}${about}); }`;
}

/** What met a wait: an event, the version of a stream, a key, or the end of a run. */
interface Met {
  name?: string;
  data?: unknown;
  entity_id?: string;
  version?: number;
  bucket?: string;
  key?: string;
  exists?: boolean;
  run_id?: string;
  output?: unknown;
  error?: { message?: string };
}

/** Of a wait for one event that event, of others all that met it. */
function metBy({ type, status, output, waitEventName }: StepView): Met[] {
  if (type !== "wait_for_event" || status !== "completed" || typeof output !== "object" || output === null)
    return [];
  const { id, data } = output as { id?: unknown; data?: unknown };
  if (typeof id === "string" && data !== undefined) return [{ name: waitEventName, data }];
  return Object.values(output).filter((one) => typeof one === "object" && one !== null);
}

function metText({ name = "", data, entity_id, version, bucket, key, exists }: Met): AnswerText[] {
  if (entity_id !== undefined) return [{ method: "stream", name: entity_id, text: json(version) }];
  if (bucket !== undefined)
    return [{ method: "key", name: bucket, text: `${json(key)}, ${exists ? "null" : "undefined"}` }];
  return name === "" ? [] : [{ method: "on", name, text: json(data, "    ") }];
}

/** `children`: the function of a child, by the step that started it; `ended`: what waits say of runs. */
function answersOf(
  step: StepView,
  children: ReadonlyMap<string, string>,
  ended: ReadonlyMap<string, Met>,
): AnswerText[] {
  const { type, status, name, stepId, output, waitEventName } = step;
  const isFailed = status === "failed";
  if (!isFailed && status !== "completed") return [];
  const text = isFailed ? thrown(step) : json(output, "    ");
  if (type === "invoke" || type === "compensate") return [{ method: "mockStep", name, text }];
  if (type === "invoke_function") {
    const method = "mockInvoke";
    const child = children.get(stepId) ?? name;
    const { run_id: runId, ...more } = (output ?? {}) as Met;
    if (isFailed || runId === undefined || Object.keys(more).length > 0)
      return [{ method, name: child, text }];
    const { output: given, error } = ended.get(runId) ?? {};
    const says = error && `() => { throw new Error(${json(error.message ?? "")}); }`;
    return [{ method, name: child, text: says ?? json(given, "    ") }];
  }
  const [, signal] = /^signal (.*)$/s.exec(waitEventName) ?? [];
  if (type === "wait_for_event" && signal !== undefined && !isFailed)
    return [{ method: "signal", name: signal, text }];
  return metBy(step).flatMap(metText);
}

/** One line for each name: several answers of one name come in their turn. */
function linesOf(answers: readonly AnswerText[]): string[] {
  const byName = Map.groupBy(answers, ({ method, name }) => `.${method}(${json(name)}, `);
  return [...byName].flatMap(([begin, [first, ...more]]) => {
    const { method, text } = first!;
    if (method === "signal" || method === "stream" || method === "key")
      return [first!, ...more].map((one) => `    ${begin}${one.text})`);
    const isCode = /^\(\) =>/.test(text);
    if (more.length > 0) {
      const each = [first!, ...more].map((one) =>
        /^\(\) =>/.test(one.text) ? one.text : `() => (${one.text})`,
      );
      return `    ${begin}inTurn(${each.join(", ")}))`;
    }
    return `    ${begin}${method === "on" && !isCode ? `() => (${text})` : text})`;
  });
}

/** The run as a test of its function: steps answer as they did, and its end must be the same. */
export function sdkTestOf(
  { run, input, output }: Pick<RunInFull, "run" | "input" | "output">,
  steps: readonly StepView[],
  children: ReadonlyMap<string, string> = new Map(),
): string {
  const inOrder = [...steps].sort((one, other) => one.sequence - other.sequence);
  const ended = new Map(inOrder.flatMap(metBy).map((met) => [met.run_id ?? "", met]));
  const lines = linesOf(inOrder.flatMap((step) => answersOf(step, children, ended)));
  const body = lines.join("\n");
  const hasTurns = body.includes("inTurn(");
  const names = body.includes("new NonRetryableError(") ? "NonRetryableError, testFunction" : "testFunction";
  const file = run.functionId.replaceAll(/[^\w.-]+/g, "-");
  return [
    `import { expect, test } from "bun:test";`,
    `import { ${names} } from "svc";`,
    `// Where your code has function ${json(run.functionId)}.`,
    `import { target } from ${json(`./${file}.ts`)};`,
    "",
    ...(hasTurns ? ["const inTurn = (...answers: (() => unknown)[]) => () => answers.shift()?.();", ""] : []),
    `test(${json(`${run.functionId} as in ${run.id}`)}, async () => {`,
    "  const result = await testFunction(target)",
    ...lines,
    `    .run(${json(input, "    ")}, { name: ${json(run.eventName)} });`,
    `  expect(result.status).toBe(${json(run.status)});`,
    run.status === "completed"
      ? `  expect(result.output).toEqual(${json(output, "  ")});`
      : `  expect(result.error?.message).toBe(${json(run.error?.message)});`,
    "});",
    "",
  ].join("\n");
}
