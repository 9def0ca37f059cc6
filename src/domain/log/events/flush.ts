import type { Instant } from "../../../kit/clock.ts";
import { ownKeyMark, storedKey, webhookKeyStart } from "../../../kit/idempotency-key.ts";
import { idempotencyKeptMs, webhookKeyKeptMs } from "../../../kit/limits.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import { type Flush, raiseMark, type Seams, StoreError, type SyncSession } from "../../../store/store.ts";
import type { NewJoin } from "../../engine/batches/join.ts";
import type { NewArm } from "../../engine/debounce/arm.ts";
import {
  gateColumns,
  holdRoom,
  insertNewRuns,
  isGated,
  leaseInRoom,
  leaseInRoomSync,
  newRunColumns,
  newRunsInserted,
  passGates,
  passGatesSync,
  skippedRuns,
  wantedLaneColumns,
  wantedLanes,
} from "../../engine/runs/create.ts";
import type { NewRun } from "../../engine/runs/run.ts";
import {
  type Appended,
  type AppendLog,
  append,
  boundColumn,
  isKeyed,
  lockHeads,
  moveHeads,
  refuseLostKeys,
  survivors,
  takeKeys,
} from "../log/append.ts";
import type { LoggedEvent } from "../log/service.ts";
import type { SchemaMark } from "../schemas/service.ts";
import { type Arrival, arrivalsInserted, arrivedIn, insertArrivals } from "./arrival.ts";
import { lateStarts, lateStartsSync } from "./late-starts.ts";
import { chargedFor, chargeSync, meteredColumns } from "./metering.ts";
import {
  afterStreams,
  type EntityPlace,
  entityColumns,
  hasRuns,
  linkRuns,
  linkRunsSync,
  moveStreams,
  moveStreamsSync,
  refuseStaleStreams,
  type StreamMove,
} from "./stream-flush.ts";

/** One event on its way into the log, with the runs it starts. */
export interface NewEvent {
  id: string;
  environmentId: string;
  name: string;
  version: number;
  /** JSON texts. */
  data: string;
  metadata: string | null;
  source: string;
  idempotencyKey: string | null;
  /** The key is the server's own: see `storedKey`. */
  ownKey?: true | undefined;
  /**
   * The function that is started directly, by its id; null for an event that its triggers are matched with.
   */
  invokes: string | null;
  /** The run whose handler emitted it. */
  runId: string | null;
  /** Null for an event of no entity. */
  entity: EntityPlace | null;
  /** What the schema of its name says of it; null for a name that has none. */
  schema: SchemaMark | null;
  /** The webhook delivery that brought it; left out for an event that none did. */
  arrival?: Arrival | undefined;
  runs: readonly NewRun[];
  /** Starts that wait for repetitions to cease. */
  arms: readonly NewArm[];
  /** Starts that wait for other events; left out for none. */
  joins?: readonly NewJoin[] | undefined;
}

export interface EmitFlushInput {
  now: Instant;
  events: readonly NewEvent[];
  /** Each of these must get its key; otherwise nothing is written and `lostKeys` is raised. */
  bound?: ReadonlySet<NewEvent>;
  /** The definitions each environment's runs were matched with. */
  definitions: ReadonlyMap<string, number>;
  /** Environments with quotas; one whose quota has no room raises `quotaSpent`. */
  metered?: readonly string[];
  /** How far the streams of the events' entities move; one that is elsewhere raises `staleStreams`. */
  streams?: readonly StreamMove[];
}

/**
 * An event that is missing in the answer was not written: its idempotency key is taken, or its environment is
 * gone.
 */
export interface EmittedRow {
  ord: number;
  position: number;
  at: Instant;
  /** Ids of runs that were to be leased at creation and are queued instead, because their queue is at its limit. */
  denied?: readonly string[] | null;
  /** Ids of runs that were not written, because a gate of their function skipped them. */
  skipped?: readonly string[] | null;
}

/** The event as feeds deliver it. */
export const loggedEvent = (event: NewEvent, position: number, at: Instant): LoggedEvent => ({
  id: event.id,
  position,
  name: event.name,
  version: event.version,
  data: event.data,
  metadata: event.metadata,
  source: event.source,
  at,
  idempotency_key: event.idempotencyKey,
  entity_id: event.entity?.id ?? null,
  entity_type: event.entity?.type ?? null,
  entity_version: event.entity?.version ?? null,
  run_id: event.runId,
  redacted_at: null,
});

/**
 * Mark raised when a function changed since its runs were matched: reload the definitions and match again.
 */
export const staleDefinitions = "definitions:";

/** What a flush writes besides what every event has. */
interface Further {
  appends: boolean;
  governed: boolean;
}

const furtherOf = (events: readonly NewEvent[], appends: boolean): Further => ({
  appends,
  governed: events.some(({ schema }) => schema !== null),
});

const eventColumns = (events: readonly NewEvent[], { appends, governed }: Further) => ({
  id: column.text(events.map((e) => e.id)),
  environment_id: column.text(events.map((e) => e.environmentId)),
  name: column.text(events.map((e) => e.name)),
  version: column.bigint(events.map((e) => e.version)),
  data: column.text(events.map((e) => e.data)),
  metadata: column.text(events.map((e) => e.metadata)),
  source: column.text(events.map((e) => e.source)),
  key: column.text(events.map(storedKey)),
  run_id: column.text(events.map((e) => e.runId)),
  ...(appends && entityColumns(events)),
  ...(governed && {
    schema_hash: column.text(events.map((e) => e.schema?.hash ?? null)),
    schema_breach: column.text(events.map((e) => e.schema?.breach ?? null)),
  }),
});

/** What a repeat of a key must agree with (`invokes`), and what it is answered. */
const keyColumns = (events: readonly NewEvent[]) => ({
  run_ids: runIdsText(events),
  invokes: column.text(events.map((e) => e.invokes)),
  key_use: column.text(events.map((e) => (e.entity ? useOfStream(e.entity.id) : e.invokes))),
});

/**
 * What the key of an append was used for, as every repeat of it must say too: an emit has nothing there, an
 * invoke a function's id.
 */
export const useOfStream = (entityId: string): string => `stream:${entityId}`;

export const unsureMark = "?";

/** The key as events show it: without the server's own mark. */
const shownKey = (events: readonly NewEvent[]) =>
  events.some((e) => e.ownKey) ? sql`ltrim(key, ${ownKeyMark})` : sql.raw("key");

/** A run that may be skipped is marked: who reads the key looks whether it is there. */
const runIdsText = (events: readonly NewEvent[]) =>
  column.text(events.map((e) => JSON.stringify(e.runs.map((r) => (r.gate ? unsureMark + r.id : r.id)))));

const webhookKey = ownKeyMark + webhookKeyStart;

const eventLog: AppendLog<NewEvent> = {
  heads: "heads",
  keyKind: sql.raw("CASE WHEN invokes IS NULL THEN 'emit' ELSE 'invoke' END"),
  keyUse: sql.raw("key_use"),
  keyRunIds: sql.raw("run_ids"),
  keyColumns: (events) => ({
    id: column.text(events.map((e) => e.id)),
    environment_id: column.text(events.map((e) => e.environmentId)),
    key: column.text(events.map(storedKey)),
    ...keyColumns(events),
  }),
  // A webhook's key is forgotten later than others: it is counted from a time to come.
  keyAt: (now) => sql`CASE WHEN substr(key, 1, ${webhookKey.length}) = ${webhookKey}
    THEN ${now} + ${sql.bigint(webhookKeyKeptMs - idempotencyKeptMs)} ELSE ${now} END`,
};

/** The columns of what not every event has; `of` is the alias that they are read by. */
const furtherNames = ({ appends, governed }: Further, of = "") => {
  const names = [
    ...(appends ? ["entity_id", "entity_type", "entity_version"] : []),
    ...(governed ? ["schema_hash", "schema_breach"] : []),
  ];
  return sql.raw(names.map((name) => `, ${of}${name}`).join(""));
};

const eventTarget = (
  further: Further,
) => sql`events (environment_id, position, id, name, version, data, metadata,
  source, at, idempotency_key, run_id${furtherNames(further)})`;

/**
 * Appends events of any number of callers in one round trip (see `log/append.ts`), with what each of them
 * starts: runs, their executions and history, and debounce entries.
 */
export const emitFlush: Flush<EmitFlushInput, EmittedRow> = {
  name: "events.emit",

  postgres({ events, bound, definitions, metered = [], streams = [], now }, seams) {
    const keyed = isKeyed(events);
    const appends = streams.length > 0;
    const further = furtherOf(events, appends);
    const runs = events.flatMap((e) => e.runs);
    const arrived = arrivedIn(events);
    const lanes = wantedLanes(runs);
    const limited = lanes.length > 0;
    const room = limited
      ? sql`${holdRoom(sql`${seams.rowsFrom("w", wantedLaneColumns(lanes))} ${appends ? sql`WHERE ${afterStreams}` : sql.empty}`, now)},
    `
      : sql.empty;
    // Lanes are locked before heads: a flush that holds a head must not wait for a lane.
    const lanesFirst = limited
      ? sql`WHERE (SELECT count(*) FROM open) >= 0`
      : appends
        ? sql`WHERE ${afterStreams}`
        : sql.empty;
    const denied = limited
      ? sql`, (SELECT json_agg(n.id) FROM run n WHERE n.event_id = a.id AND n.denied) AS denied`
      : sql.empty;
    const gated = isGated(runs);
    const skipped = gated ? sql`, ${skippedRuns}` : sql.empty;
    const unanswered = sql.raw(", NULL".repeat((limited ? 1 : 0) + (gated ? 1 : 0)));
    const started = runs.length === 0 ? sql.empty : runsStarted(seams, runs, { limited, gated, now });
    const charge = metered.length === 0 ? sql.empty : chargedFor(metered, runs.length > 0, now);
    return sql`WITH item AS MATERIALIZED (
      SELECT * FROM ${seams.rowsFrom("i", {
        ...eventColumns(events, further),
        ...(keyed && keyColumns(events)),
        ...(metered.length > 0 && meteredColumns(events)),
        ...boundColumn(events, bound),
      })}),
    known AS (SELECT * FROM ${seams.rowsFrom("k", {
      environment_id: column.text([...definitions.keys()]),
      definitions_version: column.bigint([...definitions.values()]),
    })}),
    ${appends ? moveStreams(seams, streams, now) : sql.empty}${keyed ? takeKeys(eventLog, now, appends ? afterStreams : undefined) : sql.empty}${room}${survivors(keyed)}${lockHeads(
      eventLog,
      {
        further: ["definitions_version"],
        after: lanesFirst,
      },
    )}${moveHeads(eventLog, now, {
      join: sql.raw("JOIN known ON known.environment_id = head.environment_id"),
      position: sql`CASE WHEN head.definitions_version = known.definitions_version THEN head.position + n.count
        ELSE ${raiseMark(staleDefinitions, sql.raw("head.environment_id"))} END`,
    })}
    logged AS (
      INSERT INTO ${eventTarget(further)}
      SELECT a.environment_id, m.base + a.place, a.id, a.name, a.version, a.data, a.metadata, a.source, m.last_at,
        ${shownKey(events)}, a.run_id${furtherNames(further, "a.")}
      FROM alive a JOIN moved m ON m.environment_id = a.environment_id),
    ${appends && hasRuns(events) ? linkRuns(sql.raw("item i")) : sql.empty}${arrived.length > 0 ? arrivalsInserted(seams, arrived) : sql.empty}${started}${charge}${lateStarts(seams, events)}place AS (
      SELECT a.ord, m.base + a.place AS position, m.last_at AS at${denied}${skipped}
      FROM alive a JOIN moved m ON m.environment_id = a.environment_id)
    SELECT ${sql.raw(`ord, position, at${limited ? ", denied" : ""}${gated ? ", skipped" : ""}`)} FROM place
    ${refuseLostKeys(eventLog, bound, unanswered)} ${appends ? refuseStaleStreams(unanswered) : sql.empty}`;
  },

  libsql(session, { events, bound, definitions, metered = [], streams = [], now }) {
    const logged = append<NewEvent, { definitions_version: number }>(session, eventLog, {
      entries: events,
      bound,
      now,
      environmentIds: definitions.keys(),
      further: ["definitions_version"],
      check({ environmentId }, head) {
        if (head.definitions_version !== definitions.get(environmentId))
          throw new StoreError("marked", staleDefinitions + environmentId);
      },
    });
    if (streams.length > 0) moveStreamsSync(session, streams, now);
    const { denied, skipped } = logged.length > 0 ? write(session, logged, metered, now) : noneHeld;
    if (denied.size + skipped.size === 0)
      return logged.map(({ ord, position, at }) => ({ ord, position, at }));
    return logged.map(({ ord, position, at, entry: { runs } }) => {
      const own = (ids: ReadonlySet<string>) => runs.flatMap(({ id }) => (ids.has(id) ? id : []));
      const [queued, gone] = [own(denied), own(skipped)];
      return {
        ...{ ord, position, at },
        ...(queued.length > 0 && { denied: queued }),
        ...(gone.length > 0 && { skipped: gone }),
      };
    });
  },
};

/** The joins with `alive` and `moved` leave out the runs of events that are not written. */
function runsStarted(
  seams: Seams,
  runs: readonly NewRun[],
  { limited, gated, now }: { limited: boolean; gated: boolean; now: Instant },
): Sql {
  const columns = newRunColumns(runs);
  const names = [...Object.keys(columns), "position"];
  const passed = limited ? "new_run" : "run";
  return sql`${sql.raw(gated ? "asked_run" : passed)} AS MATERIALIZED (
      SELECT r.*, m.base + a.place AS position
      FROM ${seams.rowsFrom("r", gated ? { ...columns, ...gateColumns(runs) } : columns)}
        JOIN alive a ON a.id = r.event_id JOIN moved m ON m.environment_id = a.environment_id
      ORDER BY r.id),
    ${gated ? passGates(passed, names, now) : sql.empty}${limited ? sql`${leaseInRoom(names, now)},` : sql.empty}
    ${newRunsInserted(seams, runs, now)}`;
}

interface HeldBack {
  /** Should have been leased at creation but are queued: their lanes have no room. */
  denied: ReadonlySet<string>;
  /** Not written: their gates let no more through. */
  skipped: ReadonlySet<string>;
}

const noneHeld: HeldBack = { denied: new Set(), skipped: new Set() };

/** Answers the ids of runs that did not go as they were asked for. */
function write(
  session: SyncSession,
  logged: readonly Appended<NewEvent>[],
  metered: readonly string[],
  now: Instant,
): HeldBack {
  const { rowsFrom } = session.seams;
  const events = logged.map((l) => l.entry);
  const appends = events.some(({ entity }) => entity !== null);
  const further = furtherOf(events, appends);
  session.run(sql`INSERT INTO ${eventTarget(further)}
    SELECT environment_id, position, id, name, version, data, metadata, source, at,
      ${shownKey(events)}, run_id${furtherNames(further)}
    FROM ${rowsFrom("i", {
      ...eventColumns(events, further),
      position: column.bigint(logged.map((l) => l.position)),
      at: column.bigint(logged.map((l) => l.at)),
    })}`);
  if (appends && hasRuns(events)) linkRunsSync(session, events);
  const arrived = arrivedIn(events);
  if (arrived.length > 0) insertArrivals(session, arrived);
  lateStartsSync(session, logged);
  const asked = logged.flatMap(({ entry, position }) => entry.runs.map((run) => ({ run, position })));
  if (asked.length === 0 && metered.length === 0) return noneHeld;
  const skipped = passGatesSync(
    session,
    asked.map(({ run }) => run),
    now,
  );
  const passed = skipped.size === 0 ? asked : asked.filter(({ run }) => !skipped.has(run.id));
  const wanted = passed.map(({ run }) => run);
  if (metered.length > 0) chargeSync(session, metered, { events, runs: wanted }, now);
  if (wanted.length === 0) return { ...noneHeld, skipped };
  const runs = leaseInRoomSync(session, wanted, now);
  const source = rowsFrom("n", {
    ...newRunColumns(runs),
    position: column.bigint(passed.map(({ position }) => position)),
  });
  insertNewRuns(session, source, runs, now);
  const denied = wanted.flatMap(({ id, lease }, at) =>
    lease !== null && runs[at]!.lease === null ? id : [],
  );
  return { denied: new Set(denied), skipped };
}
