import { stated } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { invalid } from "../../../kit/fault.ts";
import { searchBytesMax } from "../../../kit/limits.ts";
import { type Cursor, type PageQuery, pageSize, timeBound } from "../../../kit/page.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { type AttributeFilterInput, readFilters, requireAttributeName } from "../attributes/rules.ts";
import type { AttributeNames } from "./attributes/attribute-names.ts";
import { type AttributeOrder, candidatesOf, findRuns } from "./attributes/find-runs.ts";
import type { RunsPage } from "./lists/look.ts";
import { pageOfRuns } from "./lists/page-of-runs.ts";
import { conditions, type RunFilter } from "./rows.ts";
import { askedStatuses, parseRunStatus, statusOf } from "./rules.ts";
import type { ExecutionState, RunError, RunStatus, StepStatus, StepType } from "./run.ts";

export interface ListRunsInput extends PageQuery {
  functionId?: string;
  eventId?: string;
  search?: string;
  /** `running`, `RUNNING` or `RUN_STATUS_RUNNING`; `held` and others of one reason of a pause. */
  statuses?: readonly string[];
  /** RFC 3339, as `until`. */
  since?: string;
  until?: string;
  /** Only runs with compensations that failed for good. */
  compensationFailed?: boolean;
  /** Only failures of this group. */
  errorGroup?: string;
  /** Exactly. */
  eventName?: string;
  /** Only failures whose message, code or stack holds it, in either case. */
  errorText?: string;
  /** All of them must be met. */
  attributes?: readonly AttributeFilterInput[];
  orderBy?: { name: string; ascending?: boolean };
}

export type { RunsPage };

export interface ListRunsDeps {
  store: Store;
  names: Pick<AttributeNames, "requireTypes">;
}

export async function listRuns(
  { store, names }: ListRunsDeps,
  environmentId: string,
  input: ListRunsInput,
): Promise<RunsPage> {
  const filter = toFilter(environmentId, input);
  const order = orderOf(input);
  const { attributes } = filter;
  if (attributes || order) {
    if (input.offset) throw invalid("offset", "cannot be combined with attributes and orderBy: use cursor");
    await names.requireTypes(environmentId, attributes ?? [], order?.name);
    const size = pageSize(input.limit);
    return findRuns(store, {
      filter: { ...filter, attributes: attributes ?? [] },
      ...{ order, size, cursor: input.cursor },
    });
  }
  return pageOfRuns(store, filter, input);
}

function orderOf({ orderBy }: ListRunsInput): AttributeOrder | undefined {
  if (!orderBy) return undefined;
  return {
    name: requireAttributeName("orderBy.name", orderBy.name),
    isAscending: orderBy.ascending ?? false,
  };
}

function toFilter(environmentId: string, input: ListRunsInput): RunFilter {
  const statuses = (input.statuses ?? []).map((text) => {
    const status = parseRunStatus(text);
    if (!status)
      throw invalid(
        "statuses",
        `unknown run status "${text.slice(0, 40)}" (one of ${askedStatuses.join(", ")})`,
      );
    return status;
  });
  for (const name of ["search", "eventName", "errorText"] as const)
    if ((input[name] ?? "").length > searchBytesMax)
      throw invalid(name, `must be at most ${searchBytesMax} characters`);
  const since = timeBound("since", input.since);
  const until = timeBound("until", input.until);
  return {
    environmentId,
    statuses,
    ...(input.functionId && { functionId: input.functionId }),
    ...(input.eventId && { eventId: input.eventId }),
    ...(input.search && { search: input.search }),
    ...stated({ since, until }),
    ...(input.compensationFailed && { undoFailed: true }),
    ...(input.errorGroup && { errorGroup: input.errorGroup }),
    ...(input.eventName && { eventName: input.eventName }),
    ...(input.errorText && { errorText: input.errorText }),
    ...(input.attributes?.length && { attributes: readFilters("attributes", input.attributes) }),
  };
}

/** A run beside the event that started it, without payloads. */
export interface EventRun {
  id: string;
  functionId: string;
  status: RunStatus;
  startedAt: Instant | null;
  endedAt: Instant | null;
  steps: EventRunStep[];
}

export interface EventRunStep {
  stepId: string;
  name: string;
  type: StepType;
  status: StepStatus;
  durationMs: number | null;
  error: string | null;
}

/** Shown of one page of events; of more, the first in the order of the events. */
const runsShownMax = 1_000;
const stepsShownMax = 5_000;

interface EventRunRow extends RowOf<"runs", "id, event_id, function_id, status, started_at, ended_at"> {
  state: ExecutionState | null;
}

interface EventRunStepRow extends RowOf<"steps", "run_id, step_id, name, duration_ms, error"> {
  type: StepType;
  status: StepStatus;
}

/** The runs that these events started, with their steps, by the event's id. */
export async function runsOfEvents(
  store: Pick<Store, "all" | "seams">,
  environmentId: string,
  eventIds: readonly string[],
): Promise<Map<string, EventRun[]>> {
  const byEvent = new Map<string, EventRun[]>();
  if (eventIds.length === 0) return byEvent;
  const { rowsFrom, byKey } = store.seams;
  const runs = await store.all<EventRunRow>(sql`SELECT r.id, r.event_id, r.function_id, r.status, e.state,
      COALESCE(e.started_at, r.started_at) AS started_at, r.ended_at
    FROM ${rowsFrom("i", { id: column.text(eventIds) })} JOIN runs r ON r.event_id = i.id
      LEFT JOIN executions e ON e.run_id = r.id
    WHERE r.environment_id = ${environmentId} ORDER BY i.ord, r.created_at, r.id LIMIT ${runsShownMax}`);
  const byId = new Map<string, EventRun>();
  for (const row of runs) {
    const { status } = statusOf(row.status, row.state);
    const { id, function_id: functionId, started_at: startedAt, ended_at: endedAt } = row;
    const run: EventRun = { id, functionId, status, startedAt, endedAt, steps: [] };
    byId.set(id, run);
    const others = byEvent.get(row.event_id);
    if (others) others.push(run);
    else byEvent.set(row.event_id, [run]);
  }
  if (byId.size === 0) return byEvent;
  const run_id = column.text([...byId.keys()]);
  const steps =
    await store.all<EventRunStepRow>(sql`SELECT s.run_id, s.step_id, s.name, s.type, s.status, s.duration_ms, s.error
    FROM ${rowsFrom("i", { run_id })} JOIN steps s ON s.run_id = i.run_id ${byKey("s.run_id", run_id)}
    ORDER BY i.ord, s.sequence, s.created_at LIMIT ${stepsShownMax}`);
  for (const { run_id, step_id: stepId, name, type, status, duration_ms: durationMs, error } of steps)
    byId.get(run_id)?.steps.push({
      ...{ stepId, name, type, status, durationMs },
      error: error === null ? null : (JSON.parse(error) as RunError).message,
    });
  return byEvent;
}

/** A run as what selects many of them knows it: without its payloads. */
export interface SelectedRun {
  id: string;
  functionId: string;
  eventName: string;
  status: RunStatus;
  createdAt: Instant;
}

interface SelectedRow extends RowOf<"runs", "id, function_id, event_name, status, created_at"> {
  state: ExecutionState | null;
}

/** Selects runs as `runs.list` does, newest first. */
export type SelectRuns = ReturnType<typeof openSelectRuns>;

export const openSelectRuns = (
  store: Pick<StoreReader, "all">,
  names: Pick<AttributeNames, "requireTypes">,
) => ({
  /** Throws what is wrong with the filter. */
  filter: toFilter,

  /** Also for an attribute of another type. */
  async checked(environmentId: string, input: ListRunsInput): Promise<RunFilter> {
    const filter = toFilter(environmentId, input);
    if (filter.attributes) await names.requireTypes(environmentId, filter.attributes);
    return filter;
  },

  async page(filter: RunFilter, { after, limit }: { after: Cursor | undefined; limit: number }) {
    const { from, where, order } = await sourceOf(store, filter, after);
    const rows =
      await store.all<SelectedRow>(sql`SELECT r.id, r.function_id, r.event_name, r.status, r.created_at, e.state
      FROM ${from} LEFT JOIN executions e ON e.run_id = r.id ${sql.where(where)} ORDER BY ${order} LIMIT ${limit}`);
    return rows.map((row) => ({
      ...{ id: row.id, functionId: row.function_id, eventName: row.event_name },
      ...{ createdAt: row.created_at, status: statusOf(row.status, row.state).status },
    }));
  },

  /** By status; no more than `most` are counted. */
  async count(filter: RunFilter, most: number): Promise<Map<RunStatus, number>> {
    const { from, where } = await sourceOf(store, filter, undefined);
    const rows = await store.all<{ status: string; state: ExecutionState | null; count: number }>(
      sql`SELECT status, state, count(*) AS count FROM (
          SELECT r.status, e.state FROM ${from} LEFT JOIN executions e ON e.run_id = r.id
          ${sql.where(where)} LIMIT ${most}) counted
        GROUP BY status, state`,
    );
    const counts = new Map<RunStatus, number>();
    for (const { status: stored, state, count } of rows) {
      const { status } = statusOf(stored, state);
      counts.set(status, (counts.get(status) ?? 0) + Number(count));
    }
    return counts;
  },
});

/** A filter by attributes is led by the index of their values. */
async function sourceOf(store: Pick<StoreReader, "all">, filter: RunFilter, after: Cursor | undefined) {
  const { attributes } = filter;
  if (attributes) {
    const { candidates, rest } = await candidatesOf(store, { ...filter, attributes });
    return {
      from: sql`(${candidates(after)}) c CROSS JOIN runs r`,
      where: [sql.raw("r.id = c.run_id"), ...conditions(rest)],
      order: sql.raw("c.created_at DESC, c.run_id DESC"),
    };
  }
  const where = conditions(filter);
  if (after)
    where.push(sql`(r.created_at < ${after.at} OR (r.created_at = ${after.at} AND r.id < ${after.id}))`);
  return { from: sql.raw("runs r"), where, order: sql.raw("r.created_at DESC, r.id DESC") };
}
