import type { Program } from "../support/run-program.ts";

/** What the engine's workers run besides `steps`; what a run of each comes to is computed by `resultOf`. */
export const programs: readonly Program[] = [
  {
    id: "child",
    lines: [
      { kind: "step", name: "line-0", failures: 0 },
      { kind: "sleep", name: "line-1", ms: 100 },
      { kind: "step", name: "line-2", failures: 0 },
    ],
    endsBadly: false,
    maxAttempts: 3,
    concurrency: undefined,
  },
  {
    id: "mixed",
    lines: [
      { kind: "step", name: "line-0", failures: 0 },
      { kind: "sleep", name: "line-1", ms: 300 },
      { kind: "wait", name: "line-2", form: "path" },
      { kind: "step", name: "line-3", failures: 1 },
      { kind: "wait", name: "line-4", form: "cel" },
      { kind: "invoke", name: "line-5", child: "child", detached: false },
      { kind: "invoke", name: "line-6", child: "child", detached: true },
      { kind: "wait", name: "line-7", form: "literal" },
      { kind: "step", name: "line-8", failures: 0 },
    ],
    endsBadly: false,
    maxAttempts: 3,
    concurrency: undefined,
  },
  {
    id: "limited",
    lines: [
      { kind: "step", name: "line-0", failures: 0 },
      { kind: "step", name: "line-1", failures: 1 },
      { kind: "sleep", name: "line-2", ms: 50 },
      { kind: "step", name: "line-3", failures: 0 },
    ],
    endsBadly: false,
    maxAttempts: 3,
    concurrency: { limit: 2, keys: 3 },
  },
  {
    id: "broken",
    lines: [{ kind: "step", name: "line-0", failures: 0 }],
    endsBadly: true,
    maxAttempts: 3,
    concurrency: undefined,
  },
];

export const programsById: ReadonlyMap<string, Program> = new Map(programs.map((one) => [one.id, one]));

/** Emitted to start a run of a program. */
export const startOf = (id: string): string => `${id}.begin`;

/** Of function `debounced`, armed by `burst` with the burst's name at `data.burst`. */
export const debounceMs = 2_000;

/** What a person writes over the output of a step. */
export const patchOf = (input: string, line: string): string => `${line} of ${input}, patched`;
