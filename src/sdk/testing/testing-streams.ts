import { AsyncLocalStorage } from "node:async_hooks";
import { type ReportedError, SvcError } from "../wire/errors.ts";
import { type Message, payload } from "../wire/read.ts";
import { detour, type Request } from "../wire/transport.ts";
import type { Condition, KeyCondition } from "../wire/wire.ts";
import { asJson } from "./testing-match.ts";

/** An event that a function under test appended to a stream. */
export interface TestAppend {
  entityId: string;
  entityType: string;
  event: string;
  data: unknown;
  /** In its stream, from 1. */
  version: number;
}

const prefix = "/svc.v1.EntityStreamService/";
const running = new AsyncLocalStorage<TestStreams>();
detour.answer = (request) => running.getStore()?.answer(request);
detour.isHere = () => running.getStore() !== undefined;

/** The streams of one test run: whatever client the function uses, its appends come here. */
export class TestStreams {
  readonly appended: TestAppend[] = [];
  readonly #byKey = new Map<string, TestAppend>();

  during<Result>(work: () => Promise<Result>): Promise<Result> {
    return running.run(this, work);
  }

  /** Undefined for a call that is none of streams. */
  answer({ path, body }: Request): Promise<unknown> | undefined {
    if (!path.startsWith(prefix)) return undefined;
    const sent = body as Message;
    const answers: Record<string, () => unknown> = {
      AppendEvent: () => this.#append([{ ...sent, events: [sent] }])[0],
      AppendEvents: () => ({ results: this.#append(sent.streams as Message[]) }),
      ReadStream: () => this.#read(sent),
      GetStreamInfo: () => this.#info(sent),
    };
    const answer = answers[path.slice(prefix.length)];
    return new Promise((resolve) => {
      if (!answer)
        throw new SvcError("not_found", `testFunction keeps no ${path.slice(prefix.length)}`, {
          status: 404,
        });
      resolve(answer());
    });
  }

  #of(entityId: unknown): TestAppend[] {
    return this.appended.filter((one) => one.entityId === entityId);
  }

  /** All or nothing. */
  #append(streams: readonly Message[]): unknown[] {
    const isRepeated = ({ idempotencyKey }: Message) => this.#byKey.has(String(idempotencyKey));
    for (const { entityId, expectedVersion = 0, events } of streams) {
      // As on the server, a repeated append is answered like the first, whatever it expects.
      if ((events as Message[]).every(isRepeated)) continue;
      const { length } = this.#of(entityId);
      if (expectedVersion === -1 || expectedVersion === length) continue;
      const said = `version conflict: expected ${expectedVersion}, got ${length}`;
      throw new SvcError("aborted", said, { status: 409 });
    }
    return streams.flatMap(({ entityId, entityType, events }) =>
      (events as Message[]).map((sent) => {
        const key = sent.idempotencyKey as string | undefined;
        const found = key === undefined ? undefined : this.#byKey.get(key);
        const one = found ?? {
          ...{ entityId: String(entityId), entityType: String(entityType), event: String(sent.eventName) },
          ...{ data: asJson(payload(sent, "data")), version: this.#of(entityId).length + 1 },
        };
        if (!found) this.appended.push(one);
        if (key !== undefined) this.#byKey.set(key, one);
        const sequence = this.appended.indexOf(one) + 1;
        return { eventId: `evt_appended${sequence}`, entityVersion: one.version, sequence };
      }),
    );
  }

  #read({ entityId, fromVersion, limit, direction }: Message): unknown {
    const isBack = direction === "backward";
    const from = Number(fromVersion) || (isBack ? Number.POSITIVE_INFINITY : 1);
    const all = this.#of(entityId).filter(({ version }) => (isBack ? version <= from : version >= from));
    if (isBack) all.reverse();
    return {
      events: all.slice(0, Number(limit)).map((one) => ({
        ...{
          id: `evt_appended${this.appended.indexOf(one) + 1}`,
          name: one.event,
          version: 1,
          source: "api",
        },
        ...{ dataValue: asJson(one.data), entityVersion: one.version },
        ...{ natsSeq: this.appended.indexOf(one) + 1, timestamp: new Date(0).toISOString() },
      })),
      ...(all.length > Number(limit) && { nextVersion: all[Number(limit)]!.version }),
    };
  }

  #info({ entityId }: Message): unknown {
    const all = this.#of(entityId);
    if (!all[0]) throw new SvcError("not_found", "stream not found", { status: 404 });
    return { entityId, entityType: all[0].entityType, version: all.length };
  }
}

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
