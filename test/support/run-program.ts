import type { Chance } from "./chance.ts";

/** One line of a program. What a step answers follows from the run's input and the step's name alone. */
export type Line =
  /** Fails in the first `failures` attempts that reach it. */
  | { kind: "step"; name: string; failures: number }
  | { kind: "sleep"; name: string; ms: number }
  /** Waits for the event `signal` whose `data.k` is the run's own key for this line. */
  | { kind: "wait"; name: string; form: "path" | "literal" | "cel" }
  | { kind: "invoke"; name: string; child: string; detached: boolean };

export interface Program {
  id: string;
  lines: readonly Line[];
  /** Its last line throws for good. */
  endsBadly: boolean;
  maxAttempts: number;
  /** Values of its concurrency key and how many of one may run; undefined without limit. */
  concurrency: { limit: number; keys: number } | undefined;
}

export interface Result {
  status: "completed" | "failed";
  /** Of a completed run. */
  output: unknown;
}

export interface Features {
  waits: boolean;
  invokes: boolean;
  concurrency: boolean;
}

/** Children come before their parents, so that no program can call itself. */
export function randomPrograms(chance: Chance, features: Features): Program[] {
  const children: Program[] = features.invokes
    ? [0, 1].map((place) => randomProgram(`child-${place}`, chance, [], features))
    : [];
  const parents = [0, 1, 2].map((place) => randomProgram(`main-${place}`, chance, children, features));
  return [...children, ...parents];
}

function randomProgram(
  id: string,
  chance: Chance,
  children: readonly Program[],
  features: Features,
): Program {
  const maxAttempts = chance.between(2, 4);
  const kinds: Line["kind"][] = ["step", "step", "step", "sleep"];
  if (features.waits) kinds.push("wait");
  if (children.length > 0) kinds.push("invoke");
  const lines = Array.from({ length: chance.between(1, 6) }, (_, place): Line => {
    const name = `line-${place}`;
    switch (chance.oneOf(kinds)) {
      case "sleep":
        return { kind: "sleep", name, ms: chance.between(0, 8_000) };
      case "wait":
        return { kind: "wait", name, form: chance.oneOf(["path", "literal", "cel"] as const) };
      case "invoke":
        return { kind: "invoke", name, child: chance.oneOf(children).id, detached: chance.happens(0.3) };
      default:
        return { kind: "step", name, failures: chance.happens(0.15) ? 1 : 0 };
    }
  });
  const limited = features.concurrency && chance.happens(0.4);
  return {
    id,
    lines,
    endsBadly: chance.happens(0.1),
    maxAttempts,
    concurrency: limited ? { limit: chance.between(1, 2), keys: chance.between(1, 3) } : undefined,
  };
}

export const signalKey = (input: string, line: string): string => `${input}/${line}`;

export const answerOf = (input: string, name: string): string => `${name} of ${input}`;

export const childInput = (input: string, name: string): string => `${input}>${name}`;

/** What a run of the program comes to, computed without running it. */
export function resultOf(program: Program, input: string, programs: ReadonlyMap<string, Program>): Result {
  const failed: Result = { status: "failed", output: null };
  const outputs: unknown[] = [];
  let failures = 0;
  for (const line of program.lines) {
    if (line.kind === "step") {
      failures += line.failures;
      if (failures >= program.maxAttempts) return failed;
      outputs.push(answerOf(input, line.name));
    } else if (line.kind === "invoke" && !line.detached) {
      const child = resultOf(programs.get(line.child)!, childInput(input, line.name), programs);
      if (child.status === "failed") return failed;
      outputs.push(child.output);
    } else outputs.push(line.kind);
  }
  return program.endsBadly ? failed : { status: "completed", output: outputs };
}

/** Failures that lines up to this one cause: a line fails as long as the attempt is not above them. */
export function failuresUpTo(program: Program, place: number): number {
  let failures = 0;
  for (const line of program.lines.slice(0, place + 1)) if (line.kind === "step") failures += line.failures;
  return failures;
}
