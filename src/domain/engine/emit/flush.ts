import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { ownKeyMark, storedKey, webhookKeyStart } from "../../../kit/key-claims.ts";
import { idempotencyKeptMs, webhookKeyKeptMs } from "../../../kit/limits.ts";
import { type Ctes, column, type Sql, sql } from "../../../kit/sql.ts";
import { type Flush, raiseMark, type Seams, StoreError, type SyncSession } from "../../../store/store.ts";
import {
  type Appended,
  type AppendLog,
  append,
  boundColumn,
  isKeyed,
  lockHeads,
  moveHead,
  moveHeads,
  onlyEnvironment,
  refuseLostKeys,
  survivors,
  takeKeys,
} from "../../log/core/append.ts";
import type { LoggedEvent } from "../../log/core/service.ts";
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
} from "../runs/create.ts";
import type { NewRun } from "../runs/run.ts";
import { arrivalsInserted, arrivedIn, insertArrivals } from "./arrival.ts";
import { lateStarts, lateStartsSync } from "./late-starts.ts";
import { chargedFor, chargeSync, meteredColumns } from "./metering.ts";
import {
  eventColumns,
  type Further,
  furtherNames,
  furtherOf,
  keyColumns,
  type NewEvent,
  shownKey,
} from "./new-event.ts";
import {
  afterStreams,
  hasRuns,
  linkRuns,
  linkRunsSync,
  moveStreams,
  moveStreamsSync,
  refuseStaleStreams,
  type StreamMove,
} from "./stream-flush.ts";

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
  /** Ids of runs that were to be leased at creation but are queued, because their queue is at its limit. */
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

const webhookKey = ownKeyMark + webhookKeyStart;

const eventLog: AppendLog<NewEvent> = {
  heads: "heads",
  keyKind: sql.raw("CASE WHEN invokes IS NULL THEN 'emit' ELSE 'invoke' END"),
  keyUse: sql.raw("key_use"),
  keyRunIds: sql.raw("run_ids"),
  keyColumns: (events) => ({
    ...columnsOf(events, { text: "id environmentId" }),
    key: column.text(events.map(storedKey)),
    ...keyColumns(events),
  }),
  // A webhook's key is forgotten later than others: it is counted from a time to come.
  keyAt: (now) => sql`CASE WHEN substr(key, 1, ${webhookKey.length}) = ${webhookKey}
    THEN ${now} + ${sql.bigint(webhookKeyKeptMs - idempotencyKeptMs)} ELSE ${now} END`,
};

const eventTarget = (
  further: Further,
) => sql`events (environment_id, position, id, name, version, data, metadata,
  source, at, idempotency_key, run_id${furtherNames(further)})`;

/**
 * Mark raised when a function changed since its runs were matched: reload the definitions and match again.
 */
export const staleDefinitions = "definitions:";

interface Moving {
  /** The definitions that the runs of each environment were matched with. */
  definitions: ReadonlyMap<string, number>;
  /** A condition that must be computed before the first head is locked. */
  before: Sql | undefined;
  now: Instant;
}

/** `moved`, unless a function changed since the runs were matched. */
const unlessStale = (isCurrent: Sql, moved: Sql, environment: string): Sql =>
  sql`CASE WHEN ${isCurrent} THEN ${moved} ELSE ${raiseMark(staleDefinitions, sql.raw(environment))} END`;

/** The heads of the survivors' environments, on PostgreSQL. */
const headsMoved = (seams: Seams, { definitions, before, now }: Moving): Ctes => ({
  "known AS": sql`SELECT * FROM ${seams.rowsFrom("k", {
    environment_id: column.text([...definitions.keys()]),
    definitions_version: column.bigint([...definitions.values()]),
  })}`,
  ...lockHeads(eventLog, {
    further: ["definitions_version"],
    ...(before && { after: sql`WHERE ${before}` }),
  }),
  ...moveHeads(eventLog, now, {
    join: sql.raw("JOIN known ON known.environment_id = head.environment_id"),
    position: unlessStale(
      sql.raw("head.definitions_version = known.definitions_version"),
      sql.raw("head.position + n.count"),
      "head.environment_id",
    ),
  }),
});

/** The same where all are of environment `only`; `count` is of the survivors, undefined where keys decide. */
const headMoved = (
  { definitions, before, now }: Moving,
  { only, count }: { only: string; count: number | undefined },
): Ctes => {
  const isCurrent = sql`h.definitions_version = ${sql.bigint(definitions.get(only)!)}`;
  return moveHead(eventLog, now, {
    ...{ environmentId: only, count, after: before },
    position: (moved) => unlessStale(isCurrent, moved, "h.environment_id"),
  });
};

/**
 * Appends events of any number of callers in one round trip (see `log/core/append.ts`), with what each of
 * them starts: runs, their executions and history, and debounce entries.
 */
export const emitFlush: Flush<EmitFlushInput, EmittedRow> = {
  name: "events.emit",

  postgres({ events, bound, definitions, metered = [], streams = [], now }, seams) {
    const keyed = isKeyed(events);
    const only = onlyEnvironment(events);
    const appends = streams.length > 0;
    const further = furtherOf(events, appends);
    const runs = events.flatMap((e) => e.runs);
    const arrived = arrivedIn(events);
    const lanes = wantedLanes(runs);
    const limited = lanes.length > 0;
    const wanted = () =>
      sql`${seams.rowsFrom("w", wantedLaneColumns(lanes))} ${appends ? sql`WHERE ${afterStreams}` : sql.empty}`;
    // Lanes are locked before heads: a flush that holds a head must not wait for a lane.
    const before = limited ? sql`(SELECT count(*) FROM open) >= 0` : appends ? afterStreams : undefined;
    const denied = limited
      ? sql`, (SELECT json_agg(n.id) FROM run n WHERE n.event_id = a.id AND n.denied) AS denied`
      : sql.empty;
    const gated = isGated(runs);
    const skipped = gated ? sql`, ${skippedRuns}` : sql.empty;
    const unanswered = sql.raw(", NULL".repeat((limited ? 1 : 0) + (gated ? 1 : 0)));
    const columns = {
      ...eventColumns(events, further),
      ...(keyed && keyColumns(events)),
      ...(metered.length > 0 && meteredColumns(events)),
      ...boundColumn(events, bound),
    };
    const parts = sql.ctes(
      { "item AS MATERIALIZED": sql`SELECT * FROM ${seams.rowsFrom("i", columns)}` },
      appends && moveStreams(seams, streams, now),
      keyed && takeKeys(eventLog, now, appends ? afterStreams : undefined),
      limited && holdRoom(wanted(), now),
      survivors(keyed, only !== undefined),
      only === undefined
        ? headsMoved(seams, { definitions, before, now })
        : headMoved({ definitions, before, now }, { only, count: keyed ? undefined : events.length }),
      {
        "logged AS": sql`INSERT INTO ${eventTarget(further)}
          SELECT a.environment_id, m.base + a.place, a.id, a.name, a.version, a.data, a.metadata, a.source, m.last_at,
            ${shownKey(events)}, a.run_id${furtherNames(further, "a.")}
          FROM alive a JOIN moved m ON m.environment_id = a.environment_id`,
      },
      appends && hasRuns(events) && linkRuns,
      arrived.length > 0 && arrivalsInserted(seams, arrived),
      runs.length > 0 && runsStarted(seams, runs, { limited, gated, now }),
      metered.length > 0 && chargedFor(seams, metered, { hasRuns: runs.length > 0, now }),
      lateStarts(seams, events),
      {
        "place AS": sql`SELECT a.ord, m.base + a.place AS position, m.last_at AS at${denied}${skipped}
          FROM alive a JOIN moved m ON m.environment_id = a.environment_id`,
      },
    );
    return sql`WITH ${parts}
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
): Ctes {
  const columns = newRunColumns(runs);
  const names = [...Object.keys(columns), "position"];
  const passed = limited ? "new_run" : "run";
  return {
    [`${gated ? "asked_run" : passed} AS MATERIALIZED`]: sql`SELECT r.*, m.base + a.place AS position
      FROM ${seams.rowsFrom("r", gated ? { ...columns, ...gateColumns(runs) } : columns)}
        JOIN alive a ON a.id = r.event_id JOIN moved m ON m.environment_id = a.environment_id
      ORDER BY r.id`,
    ...(gated && passGates(passed, names, now)),
    ...(limited && leaseInRoom(names, now)),
    ...newRunsInserted(seams, runs, now),
  };
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
      ...columnsOf(logged, { bigint: "position at" }),
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
