import type { Clock } from "../../../kit/clock.ts";
import { isRunId } from "../../../kit/ids.ts";
import { idempotencyKeptMs, purgeSliceMax } from "../../../kit/limits.ts";
import { pageSize } from "../../../kit/page.ts";
import { sql } from "../../../kit/sql.ts";
import { type TraceContext, traceIn, traceOfRun, traceparentOf } from "../../../kit/trace.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Store } from "../../../store/store.ts";
import type { EventLog, EventsPage, ListEventsQuery, LoggedEvent } from "../../log/core/service.ts";
import type { Emitted } from "./answers.ts";
import { type EmitQueueDeps, openEmitQueue } from "./emit-queue.ts";
import type { InvokeTarget } from "./new-runs.ts";
import type { EmitOrigin, EmitUnit } from "./prepare.ts";
import { purgeKeys } from "./rows.ts";
import { type EventDraft, requireEmittable } from "./rules.ts";
import { type Judged, openTriggering, unjudged } from "./trigger-evaluation.ts";

/** Runs that a node knows to exist, for the events they emit. */
const runsRememberedMax = 10_000;

/** A cached answer cannot become wrong: a run never changes its environment. */
const keptMs = 60_000;

/** A run that emits, the function that it runs, and the trace that it goes on. */
interface EmittingRun {
  runId: string;
  functionId: string;
  trace: TraceContext | undefined;
}

/**
 * The run an event may name as its origin (`X-Svc-Run-ID`). A header that names no run of the caller's
 * environment is ignored, not refused: clients send it by themselves, and a foreign id must look like a
 * missing one.
 */
function openProvenance({ store, clock }: { store: Store; clock: Clock }) {
  const known = ttlCache<EmittingRun>({
    clock,
    keptMs,
    entriesMax: runsRememberedMax,
    async read(key) {
      const [environmentId, runId] = key.split("\n") as [string, string];
      const found = await store.one<{ function_id: string; metadata: string | null }>(
        sql`SELECT r.function_id, v.metadata FROM runs r LEFT JOIN events v ON v.id = r.event_id
          WHERE r.id = ${runId} AND r.environment_id = ${environmentId}`,
      );
      return found && { runId, functionId: found.function_id, trace: traceIn(found.metadata) };
    },
  });
  return async (environmentId: string, runId: string): Promise<EmittingRun | undefined> =>
    isRunId(runId) ? known.get(`${environmentId}\n${runId}`) : undefined;
}

/** A start of one function, checked, with payloads as the JSON text that is stored. */
export interface InvokeDraft extends InvokeTarget {
  /** JSON text, and the value it was written from. */
  data: string;
  value: unknown;
  metadata: string | null;
  idempotencyKey: string | null;
  /** The key is the server's own: see `storedKey`. */
  ownKey?: true;
}

export type { EmitOrigin, Emitted };

/** Source is `invoke` unless it says otherwise. */
export type InvokeOrigin = Omit<EmitOrigin, "source"> & { source?: string };

export type Events = ReturnType<typeof openEvents>;

export type EventsDeps = EmitQueueDeps;

export function openEvents(deps: EventsDeps) {
  const { store, clock, ids, definitions } = deps;
  const provenanceOf = openProvenance({ store, clock });
  const triggering = openTriggering({ clock, definitions });
  const queue = openEmitQueue(deps);

  const keepsSpans = deps.watch.tracer.on;

  /**
   * Leaves out a run that the environment does not have; an event without a trace goes on with that of its
   * run. Answers without a promise when no run is named.
   */
  const proven = (origin: EmitOrigin, stepId?: string): EmitOrigin | Promise<EmitOrigin> =>
    origin.runId === undefined
      ? origin
      : provenanceOf(origin.environmentId, origin.runId).then((run) => {
          const trace = run?.trace && traceOfRun(run.trace, { runId: run.runId, stepId, keepsSpans });
          return {
            ...origin,
            runId: run?.runId,
            emitter: run?.functionId,
            traceparent: origin.traceparent ?? (trace && traceparentOf(trace)),
          };
        });

  const judgedLater = (): Judged => ({
    id: ids.next("evt"),
    at: undefined,
    verdicts: undefined,
    values: undefined,
    schema: undefined,
    refused: undefined,
  });

  const submit = (
    origin: EmitOrigin,
    drafts: readonly EventDraft[],
    { target, undelayed = false }: { target?: InvokeTarget; undelayed?: boolean } = {},
  ): Promise<Emitted[]> => {
    requireEmittable(drafts, origin);
    const judged = drafts.map(judgedLater);
    const unit: EmitUnit = { origin, drafts, target, undelayed, judged, judgedBy: undefined };
    return triggering.through(unit, queue.submit);
  };

  return {
    /**
     * Commits the events in order, all or none of them; resolves when they are durable. A repeated
     * idempotency key answers the first, a key that names something else refuses them all, `already_exists`.
     */
    async emit(drafts: readonly EventDraft[], origin: EmitOrigin): Promise<Emitted[]> {
      if (drafts.length === 0) return [];
      const known = proven(origin);
      return submit(known instanceof Promise ? await known : known, drafts);
    },

    /** Throws what the schema of its name has against the event, and writes nothing. */
    async check(draft: EventDraft, origin: EmitOrigin) {
      requireEmittable([draft], origin);
      // No flush checks afterwards whether the definitions in memory are old.
      await definitions.current(origin.environmentId);
      const own = { origin, drafts: [draft], target: undefined, undelayed: false };
      const unit: EmitUnit = { ...own, judged: [judgedLater()], judgedBy: undefined };
      await triggering.through(unit, async ({ judged, judgedBy }) => {
        if (!judgedBy) throw unjudged;
        if (judged[0]!.refused) throw judged[0]!.refused;
      });
    },

    /** One event whose runs begin at once: `failed_precondition` when one of them would be debounced. */
    async emitUndelayed(draft: EventDraft, origin: EmitOrigin): Promise<Emitted> {
      const [emitted] = await submit(await proven(origin), [draft], { undelayed: true });
      return emitted!;
    },

    /**
     * Logs one event named by the function and starts exactly one run of it; no event triggers are matched.
     * `not_found` for an unknown function, `failed_precondition` for an archived one and for one that a run
     * may not invoke; a paused one's run waits. `already_exists` for an idempotency key that an emit or
     * another function has used.
     */
    async invoke(
      { functionId, parent, anyFunction = false, ...payload }: InvokeDraft,
      { source = "invoke", environmentId, runId, traceparent }: InvokeOrigin,
    ): Promise<Emitted> {
      const origin = await proven({ environmentId, source, runId, traceparent }, parent?.stepId);
      const draft = { ...payload, name: functionId, version: 1, metadataValue: null };
      const [emitted] = await submit(origin, [draft], {
        target: { functionId, anyFunction, ...(parent && { parent }) },
      });
      return emitted!;
    },

    /** Resolves once nothing is on its way to the store. */
    drain: queue.drain,

    /** The tick of loop `events.keys`: forgets idempotency keys after their time. */
    async purgeOnce(write: Store["write"]) {
      const before = clock.now() - idempotencyKeptMs;
      while ((await write((session) => purgeKeys(session, before, purgeSliceMax))) === purgeSliceMax);
    },
  };
}

/** Events read for one page at most. */
const scannedMax = 5_000;

/**
 * A page of the events that a caller may see; older events take the places of hidden ones. The page tells
 * of later pages only whether they hold something for this caller: a search must not reveal hidden events.
 */
export async function screenedPage(
  log: Pick<EventLog, "list">,
  environmentId: string,
  query: ListEventsQuery,
  refusalOf: (event: LoggedEvent) => unknown,
): Promise<EventsPage> {
  const allowed = async (events: readonly LoggedEvent[]) => {
    const kept: LoggedEvent[] = [];
    for (const event of events) if ((await refusalOf(event)) === undefined) kept.push(event);
    return kept;
  };
  const limit = pageSize(query.limit);
  const first = await log.list(environmentId, query);
  const events = await allowed(first.events);
  let scanned = first.events.length + first.scanned;
  let last = first;
  const further = async (): Promise<LoggedEvent[]> => {
    const { before: _, ...rest } = query;
    const cursor = last.nextCursor!;
    last = await log.list(environmentId, { ...rest, cursor, limit: Math.max(1, limit - events.length) });
    scanned += last.events.length + last.scanned;
    return allowed(last.events);
  };
  // A page towards newer events is not extended.
  while (query.before === undefined && events.length < limit && last.hasNext && scanned < scannedMax)
    events.push(...(await further()));
  const { nextCursor } = last;
  let hasNext = last.hasNext;
  if (hasNext) {
    let more = 0;
    while (more === 0 && last.hasNext && scanned < scannedMax) more = (await further()).length;
    hasNext = more > 0 || last.hasNext;
  }
  return {
    ...first,
    events,
    hasNext,
    nextCursor: hasNext ? nextCursor : undefined,
    approxTotal: events.length,
    approxTotalCapped: hasNext || first.hasPrev,
  };
}
