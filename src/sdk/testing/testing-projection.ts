import { type FoldFailure, handleBatch, ProjectionFold } from "../projections/projection-fold.ts";
import type { ProjectedEvent, SvcProjection } from "../projections/projection-types.ts";
import { digestHex } from "../wire/payload.ts";
import type { Logger } from "../wire/types.ts";
import { asJson, valueAt } from "./testing-match.ts";

/** An event that a test hands to a projection. */
export interface EventToProject {
  event: string;
  data: unknown;
  /** Of the event's schema. Default 1. */
  version?: number;
  metadata?: Record<string, unknown>;
  timestamp?: string;
  /** Of an event that was appended to a stream. */
  entityId?: string;
}

export interface ProjectionTestResult<State = unknown> {
  /** Of the only partition there is; undefined where there are several, or none. */
  state: State | undefined;
  /** By partition. */
  states: Record<string, State>;
  /** Events whose handler failed for good; their partitions have stopped there. */
  failures: { partition: string; event: ProjectedEvent; error: unknown }[];
}

export interface ProjectionTest<State = unknown> {
  /**
   * Folds events one after the other, by the code of a worker, onto what was folded before. Each state goes
   * through JSON after each event, as after a restart. Retries cost no time.
   */
  fold(events: readonly EventToProject[]): Promise<ProjectionTestResult<State>>;
}

const shared = "__global__";
const keyBytesMax = 512;
const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} };

/** The partition of an event, by the server's rules. */
async function partitionOf(path: string, { data, entityId }: EventToProject): Promise<string> {
  if (path === "") return shared;
  if (/^(\$\.)?(event\.)?entity_?id$/i.test(path)) return entityId ?? shared;
  const value = valueAt(data, path) ?? valueAt(data, path.replace(/^event\./, ""));
  if ((value ?? "") === "") return shared;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return new TextEncoder().encode(text).length <= keyBytesMax ? text : `sha256:${await digestHex(text)}`;
}

/** What the names and patterns of a projection let through. */
function isWanted(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => {
    const wanted = pattern.split(".");
    const given = name.split(".");
    const isOpen = wanted.at(-1) === ">";
    if (isOpen ? given.length < wanted.length : given.length !== wanted.length) return false;
    return wanted.every(
      (one, at) => one === "*" || (isOpen && at === wanted.length - 1) || one === given[at],
    );
  });
}

/**
 * A projection in memory, without a server.
 *
 * `const { states } = await testProjection(totals)
 *   .fold([{ event: "order.placed", data: { customer: "ada", total: 3 } }]);`
 */
export function testProjection<State>(projection: SvcProjection<State>): ProjectionTest<State> {
  if (projection.work.mode === "sql")
    throw new TypeError(`projection ${projection.name} is folded by the server: test it there`);
  const stored = new Map<string, { text: string; position: number }>();
  const stopped = new Set<string>();
  const failures: FoldFailure[] = [];
  const host = { pause: async () => {}, isLeaving: () => false, onRetry() {} };
  let sequence = 0;

  async function take(event: ProjectedEvent): Promise<void> {
    if (projection.work.mode === "external") {
      const { signal } = new AbortController();
      const { failure } = await handleBatch(projection, [event], { ...host, signal, log: silent });
      if (failure) fail(failure);
      return;
    }
    const fold = new ProjectionFold(projection, {
      ...host,
      async read(partition) {
        const { text = "null", position = 0 } = stored.get(partition) ?? {};
        return { state: JSON.parse(text), position };
      },
    });
    const folded = await fold.fold([event]);
    for (const { partition, text, last } of folded.written)
      stored.set(partition, { text, position: last.sequence });
    for (const failure of folded.failures) fail(failure);
  }

  function fail(failure: FoldFailure): void {
    failures.push(failure);
    stopped.add(projection.work.mode === "external" ? shared : failure.partition);
  }

  const isStopped = (partition: string) =>
    stopped.has(projection.work.mode === "external" ? shared : partition);

  return {
    async fold(events) {
      for (const given of events) {
        sequence++;
        if (!isWanted(projection.events, given.event)) continue;
        const partition = await partitionOf(projection.partitionKey, given);
        if (isStopped(partition)) continue;
        const { event: name, version = 1, metadata = {}, timestamp } = given;
        await take({
          ...{ id: `evt_test${sequence}`, name, version, metadata, sequence, partition, source: "api" },
          timestamp: timestamp ?? new Date(sequence).toISOString(),
          data: asJson(given.data),
        });
      }
      const states = Object.fromEntries(
        [...stored].map(([partition, { text }]) => [partition, JSON.parse(text) as State]),
      );
      const all = Object.values(states);
      return { state: all.length === 1 ? all[0] : undefined, states, failures: [...failures] };
    },
  };
}
