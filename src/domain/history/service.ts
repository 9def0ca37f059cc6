import { type Clock, type Instant, parseRfc3339 } from "../../kit/clock.ts";
import { Fault, invalid, missing } from "../../kit/fault.ts";
import { auditRunsMax } from "../../kit/limits.ts";
import { pageSize, readCursor, writeCursor } from "../../kit/page.ts";
import type { Store } from "../../store/store.ts";
import type { FunctionDefinition } from "../functions/definition.ts";
import type { Run, Step } from "../runs/run.ts";
import * as rows from "./rows.ts";
import { eventsOf, type HistoryEvent, isShown, type PastStep, statusAt, stepAt } from "./rules.ts";

export interface RunState {
  run: Run;
  status: string;
  steps: (PastStep & { step: Step })[];
  at: Instant;
}

export interface TimelineEvent extends HistoryEvent {
  stepName: string;
}

export interface TrailQuery {
  run_id?: string;
  function_id?: string;
  event_type?: string;
  /** RFC 3339, inclusive. */
  from?: string;
  to?: string;
  limit?: number;
  cursor?: string;
  /** Of authorization decisions, of which this trail has none: asking for them answers nothing. */
  action?: string;
  api_key_id?: string;
}

export interface Trail {
  events: (HistoryEvent & { functionId: string; environmentId: string })[];
  nextCursor: string | undefined;
  /** Of a run's trail all that match; of an environment's, those of this page. */
  totalCount: number;
  /** Zero: kept without end. */
  retentionDays: number;
}

export interface History {
  /** `not_found` when the run is not there, was not yet, or its function does not record. */
  stateAt(environmentId: string, runId: string, at: Instant | undefined): Promise<RunState>;
  /** Empty when the run's function does not record. */
  timeline(environmentId: string, runId: string): Promise<TimelineEvent[]>;
  stepAt(environmentId: string, runId: string, stepId: string, at: Instant | undefined): Promise<PastStep>;
  trail(environmentId: string, query: TrailQuery): Promise<Trail>;
}

export interface HistoryDeps {
  store: Store;
  clock: Clock;
  runs: {
    get(environmentId: string, runId: string): Promise<Run>;
    steps(environmentId: string, runId: string): Promise<Step[]>;
  };
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  retentionDaysOf: (environmentId: string) => Promise<number>;
}

/** Reads of what happened; it is written by whoever changes a run, in the same transaction. */
export function openHistory({ store, clock, runs, definitionOf, retentionDaysOf }: HistoryDeps): History {
  /** The run and how it was recorded; no definition when it was not. */
  async function recorded(environmentId: string, runId: string) {
    const run = await runs.get(environmentId, runId);
    const definition = await definitionOf(environmentId, run.functionId, run.functionVersion);
    return { run, definition: definition.recording ? definition : undefined };
  }

  async function stateAt(environmentId: string, runId: string, instant: Instant | undefined) {
    const at = instant ?? clock.now();
    const { run, definition } = await recorded(environmentId, runId);
    if (!definition) throw new Fault("not_found", `run ${runId} was not recorded`);
    const [history, steps] = await Promise.all([
      rows.historyOf(store, environmentId, runId),
      definition.recordingProfile === "run_lifecycle" ? [] : runs.steps(environmentId, runId),
    ]);
    const status = statusAt(history, at);
    if (status === undefined) throw new Fault("not_found", `run ${runId} was not there yet at that time`);
    const past = steps.flatMap((step) => {
      const error = step.error === null ? null : JSON.stringify(step.error);
      const found = stepAt(history, { ...step, error }, at);
      return found ? [{ ...found, step }] : [];
    });
    return { run, status, steps: past, at };
  }

  return {
    stateAt,

    async timeline(environmentId, runId) {
      const { definition } = await recorded(environmentId, runId);
      if (!definition) return [];
      const [history, steps] = await Promise.all([
        rows.historyOf(store, environmentId, runId),
        runs.steps(environmentId, runId),
      ]);
      const names = new Map(steps.map((step) => [step.stepId, step.name]));
      return history
        .flatMap(eventsOf)
        .filter((event) => isShown(definition.recordingProfile, event.type))
        .map((event) => ({
          ...event,
          stepName: event.stepId === null ? "" : (names.get(event.stepId) ?? ""),
        }));
    },

    async stepAt(environmentId, runId, stepId, at) {
      const { steps } = await stateAt(environmentId, runId, at);
      const found = steps.find(({ step }) => step.stepId === stepId || step.id === stepId);
      if (!found) throw missing("step", stepId);
      return found;
    },

    async trail(environmentId, query) {
      const retentionDays = await retentionDaysOf(environmentId);
      const from = instant("from", query.from);
      const to = instant("to", query.to);
      const limit = pageSize(query.limit);
      const place = query.cursor ? placeOf(query.cursor) : undefined;
      if (query.action || query.api_key_id)
        return { events: [], nextCursor: undefined, totalCount: 0, retentionDays };
      const wanted = (event: HistoryEvent) =>
        (!query.event_type || event.type === query.event_type) &&
        (from === undefined || event.at >= from) &&
        (to === undefined || event.at <= to);

      const found = query.run_id
        ? await oneRun(environmentId, query.run_id, query.function_id)
        : await rows.trailRuns(
            store,
            {
              environmentId,
              ...(query.function_id && { functionId: query.function_id }),
              ...(from !== undefined && { from }),
              ...(to !== undefined && { to }),
            },
            place,
            auditRunsMax,
          );
      const history = await rows.historyOfAll(
        store,
        found.map((run) => run.id),
      );
      const all = found.flatMap((run) =>
        (history.get(run.id) ?? [])
          .flatMap(eventsOf)
          .reverse()
          .map((event, skip) => ({ event, run, skip }))
          .filter(({ event, skip }) => wanted(event) && !(place?.id === run.id && skip < place.skip)),
      );
      const page = all.slice(0, limit);
      const next = all[limit];
      const last = found.at(-1);
      // A page may end short of its limit: so many runs were looked at without a match. The cursor goes on from there.
      const nextCursor = next
        ? cursorOf(next.run, next.skip)
        : !query.run_id && found.length === auditRunsMax && last
          ? cursorOf(last, Number.MAX_SAFE_INTEGER)
          : undefined;
      const events = page.map(({ event, run }) => ({ ...event, functionId: run.function_id, environmentId }));
      const earlier = query.run_id ? all.length : page.length;
      return { events, nextCursor, totalCount: earlier, retentionDays };
    },
  };

  /** A foreign or unknown run has no trail. */
  async function oneRun(environmentId: string, runId: string, functionId: string | undefined) {
    const run = await runs.get(environmentId, runId);
    if (functionId && functionId !== run.functionId) return [];
    return [{ id: run.id, function_id: run.functionId, created_at: run.createdAt }];
  }
}

/** A place in the trail: a run, and how many of its events, newest first, came before. */
const cursorOf = (run: rows.TrailRun, skip: number): string =>
  writeCursor({ at: run.created_at, id: `${run.id}-${skip}` });

function placeOf(text: string): { at: number; id: string; skip: number } {
  const { at, id } = readCursor("cursor", text);
  const [, runId, skip] = /^(.+)-(\d{1,16})$/.exec(id) ?? [];
  if (runId === undefined) throw invalid("cursor", "is not a cursor of this list");
  return { at, id: runId, skip: Number(skip) };
}

function instant(field: string, text: string | undefined): Instant | undefined {
  if (text === undefined || text === "") return undefined;
  const at = parseRfc3339(text);
  if (at === undefined)
    throw new Fault("invalid_argument", `invalid '${field}' parameter: must be RFC3339`, { field });
  return at;
}
