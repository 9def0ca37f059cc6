import type { RunInFull, StepView } from "../../lib/runs.ts";

/** As code takes it: U+2028 and U+2029 stand in JSON as they are, and would end a line. */
const json = (value: unknown, indent = ""): string =>
  (JSON.stringify(value ?? null, null, 2) ?? "null")
    .replaceAll("\n", `\n${indent}`)
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");

/** What a step or a wait gave, as the test says it. */
interface AnswerText {
  method: "mockStep" | "mockInvoke" | "on";
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

/** `children`: the function of a child, by the step that started it. */
function answerOf(step: StepView, children: ReadonlyMap<string, string>): AnswerText | undefined {
  const { type, status, name, stepId } = step;
  const isFailed = status === "failed";
  if (!isFailed && status !== "completed") return undefined;
  const text = isFailed ? thrown(step) : json(step.output, "    ");
  if (type === "invoke" || type === "compensate") return { method: "mockStep", name, text };
  if (type === "invoke_function") return { method: "mockInvoke", name: children.get(stepId) ?? name, text };
  if (type !== "wait_for_event" || isFailed || step.output === null) return undefined;
  const { data = step.output } = step.output as { data?: unknown };
  return { method: "on", name: step.waitEventName, text: json(data, "    ") };
}

/** One line for each name: several answers of one name come in their turn. */
function linesOf(answers: readonly AnswerText[]): string[] {
  const byName = Map.groupBy(answers, ({ method, name }) => `.${method}(${json(name)}, `);
  return [...byName].map(([begin, [first, ...more]]) => {
    const { method, text } = first!;
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
  const lines = linesOf(
    [...steps]
      .sort((one, other) => one.sequence - other.sequence)
      .flatMap((step) => answerOf(step, children) ?? []),
  );
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
