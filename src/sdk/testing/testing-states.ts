import type { ReportedError } from "../wire/errors.ts";
import type { Condition, KeyCondition } from "../wire/wire.ts";
import type { TestAppend } from "./testing-streams.ts";

/** What stands beside the events of a test run: versions of streams, and keys. */
export interface TestStates {
  streams: { entityId: string; version: number; afterMs: number | undefined }[];
  /** `value` is base64; undefined of a deletion. */
  keys: { bucket: string; key: string; value: string | undefined; afterMs: number | undefined }[];
}

/** A run that the function started, which is over at `endedMs`. */
export interface TestChild {
  functionId: string;
  endedMs: number;
  output?: unknown;
  error?: ReportedError;
}

export interface StandingStates {
  states: TestStates;
  appended: readonly TestAppend[];
  children: ReadonlyMap<string, TestChild>;
  startMs: number;
}

/** What met a condition, and when, as the server stores it. */
export interface StateMet {
  kind: "stream" | "key" | "run";
  value: object;
  atMs: number;
}

/** By the server's rules: what is so already counts at once, else what first is so until `untilMs`. */
export function stateMet(
  condition: Exclude<Condition, { event: string }>,
  standing: StandingStates,
  { nowMs, untilMs }: { nowMs: number; untilMs: number },
): StateMet | undefined {
  const met =
    "stream" in condition
      ? streamMet(condition.stream, standing)
      : "run" in condition
        ? runMet(condition.run.run_id, standing)
        : keyMet(condition.key, standing, nowMs);
  const atMs = met && Math.max(nowMs, met.atMs);
  return met && atMs! <= untilMs ? { ...met, atMs: atMs! } : undefined;
}

const atOf = (afterMs: number | undefined, startMs: number): number =>
  afterMs === undefined ? Number.NEGATIVE_INFINITY : startMs + afterMs;

function streamMet(
  { entity_id, version, after }: Extract<Condition, { stream: object }>["stream"],
  { states, appended, startMs }: StandingStates,
): StateMet | undefined {
  const least = version ?? after! + 1;
  const own = appended.filter(({ entityId }) => entityId === entity_id);
  const versions = [
    { version: own.length, atMs: Number.NEGATIVE_INFINITY },
    ...states.streams
      .filter(({ entityId }) => entityId === entity_id)
      .map((one) => ({ version: one.version, atMs: atOf(one.afterMs, startMs) })),
  ];
  const [first] = versions.filter((one) => one.version >= least).sort((a, b) => a.atMs - b.atMs);
  const value = { entity_id, entity_type: own[0]?.entityType ?? "entity", version: first?.version };
  return first && { kind: "stream", value, atMs: first.atMs };
}

function runMet(runId: string, { children }: StandingStates): StateMet {
  const child = children.get(runId);
  if (!child) throw new TypeError(`the run of the test did not start a run ${runId}`);
  const { functionId, output, error, endedMs } = child;
  const rest = error ? { status: "failed", error } : { status: "completed", output };
  return { kind: "run", value: { run_id: runId, function_id: functionId, ...rest }, atMs: endedMs };
}

function keyMet(
  wanted: KeyCondition,
  { states, startMs }: StandingStates,
  nowMs: number,
): StateMet | undefined {
  const { bucket, key } = wanted;
  const changes = states.keys
    .filter((one) => one.bucket === bucket)
    .map((one) => ({ ...one, atMs: atOf(one.afterMs, startMs) }))
    .sort((a, b) => a.atMs - b.atMs)
    .map((one, at) => ({ ...one, revision: at + 1 }))
    .filter((one) => one.key === key);
  const past = changes.filter(({ atMs }) => atMs <= nowMs);
  const coming = changes.filter(({ atMs }) => atMs > nowMs);
  const inTurn = [past.at(-1) ?? { value: undefined, revision: 0, atMs: nowMs }, ...coming];
  const met = inTurn.find(({ value, revision }) => {
    if (wanted.after !== undefined) return revision > wanted.after;
    if (wanted.equals !== undefined) return value === wanted.equals;
    return wanted.exists ? value !== undefined : value === undefined;
  });
  if (!met) return undefined;
  const { value, revision, atMs } = met;
  return {
    kind: "key",
    value: { bucket, key, exists: value !== undefined, ...(revision > 0 && { revision }) },
    atMs,
  };
}
