import { columnsOf } from "../../../kit/columns.ts";
import { ownKeyMark, storedKey } from "../../../kit/key-claims.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { SchemaMark } from "../../log/schemas/service.ts";
import type { NewJoin } from "../batches/join.ts";
import type { NewArm } from "../debounce/arm.ts";
import type { NewRun } from "../runs/run.ts";
import type { Arrival } from "./arrival.ts";
import { type EntityPlace, entityColumns } from "./stream-flush.ts";

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
  /** A delayed event whose time has come: the quota of bytes refuses it no longer. */
  isAccepted?: true | undefined;
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

/** What a flush writes besides what every event has. */
export interface Further {
  appends: boolean;
  governed: boolean;
}

export const furtherOf = (events: readonly NewEvent[], appends: boolean): Further => ({
  appends,
  governed: events.some(({ schema }) => schema !== null),
});

export const eventColumns = (events: readonly NewEvent[], { appends, governed }: Further) => ({
  ...columnsOf(events, { text: "id environmentId name data metadata source runId", bigint: "version" }),
  key: column.text(events.map(storedKey)),
  ...(appends && entityColumns(events)),
  ...(governed && {
    schema_hash: column.text(events.map((e) => e.schema?.hash ?? null)),
    schema_breach: column.text(events.map((e) => e.schema?.breach ?? null)),
  }),
});

/** What a repeat of a key must agree with (`invokes`), and what it is answered. */
export const keyColumns = (events: readonly NewEvent[]) => ({
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
export const shownKey = (events: readonly NewEvent[]) =>
  events.some((e) => e.ownKey) ? sql`ltrim(key, ${ownKeyMark})` : sql.raw("key");

/** A run that may be skipped is marked: who reads the key looks whether it is there. */
const runIdsText = (events: readonly NewEvent[]) =>
  column.text(events.map((e) => JSON.stringify(e.runs.map((r) => (r.gate ? unsureMark + r.id : r.id)))));

/** The columns of what not every event has; `of` is the alias that they are read by. */
export const furtherNames = ({ appends, governed }: Further, of = "") => {
  const names = [
    ...(appends ? ["entity_id", "entity_type", "entity_version"] : []),
    ...(governed ? ["schema_hash", "schema_breach"] : []),
  ];
  return sql.raw(names.map((name) => `, ${of}${name}`).join(""));
};
