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
  /** Started by events that came in bursts, each once it was quiet for the period; by other events where this is missing. */
  debounce?: { periodMs: number; maxWaitMs: number | undefined };
  /** Started by the clock, every so many seconds. */
  everySeconds?: number;
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
  debounce: boolean;
  cron: boolean;
  /** People cancel, pause, inject, patch and resume. */
  people: boolean;
  /** Callers append to streams, and runners fold a projection of them. */
  folds: boolean;
  /** Runs that end without success are undone first. */
  undo: boolean;
}

/** Children come before their parents, so that no program can call itself. */
export function randomPrograms(chance: Chance, features: Features): Program[] {
  const children: Program[] = features.invokes
    ? [0, 1].map((place) => randomProgram(`child-${place}`, chance, [], features))
    : [];
  const parents = [0, 1, 2].map((place) => randomProgram(`main-${place}`, chance, children, features));
  const programs = [...children, ...parents];
  // Nobody could signal what starts by itself.
  const alone = { ...features, waits: false, invokes: false };
  if (features.debounce) {
    const periodMs = 1_000 * chance.between(1, 4);
    const maxWaitMs = chance.happens(0.5) ? chance.between(periodMs, 2 * periodMs) : undefined;
    programs.push({ ...randomProgram("burst-0", chance, [], alone), debounce: { periodMs, maxWaitMs } });
  }
  if (features.cron) {
    const step: Line = { kind: "step", name: "line-0", failures: 0 };
    const everySeconds = chance.oneOf([2, 3, 5, 10]);
    programs.push({
      id: "cron-0",
      lines: [step],
      endsBadly: false,
      maxAttempts: 2,
      concurrency: undefined,
      everySeconds,
    });
  }
  return programs;
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

/** What tells the runs of a program apart: given by whoever started it, or the slot of its schedule. */
export const inputOf = (data: string): string => {
  const { input, scheduledAt } = JSON.parse(data) as { input?: string; scheduledAt?: string };
  return input ?? scheduledAt ?? "";
};

/** What a run of the program comes to, computed without running it; `revived` is how often it went on after it had failed. */
export function resultOf(
  program: Program,
  input: string,
  programs: ReadonlyMap<string, Program>,
  revived = 0,
): Result {
  const failed: Result = { status: "failed", output: null };
  const outputs: unknown[] = [];
  let failures = 0;
  for (const line of program.lines) {
    if (line.kind === "step") {
      failures += line.failures;
      if (failures >= program.maxAttempts + revived) return failed;
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
