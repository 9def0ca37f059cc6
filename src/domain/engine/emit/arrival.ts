import { columnsOf } from "../../../kit/columns.ts";
import { idempotencyKeptMs, webhookKeyKeptMs } from "../../../kit/limits.ts";
import { type Ctes, column, type Sql, sql } from "../../../kit/sql.ts";
import type { Seams, SyncSession } from "../../../store/store.ts";

/** The delivery that brought an event: written in the transaction of the event. */
export interface Arrival {
  id: string;
  sourceId: string;
  externalId: string;
  signatureKey: string;
  redeliveredFrom: string | null;
  bodyWhole: number;
  at: number;
  /** JSON text. */
  headers: string;
  body: string;
  /** A second key by which the event is found, as it is stored; left out for none. */
  proofKey?: string | null;
}

interface ArrivedEvent {
  id: string;
  environmentId: string;
  name: string;
  arrival?: Arrival | undefined;
}

export const arrivedIn = <Event extends ArrivedEvent>(
  events: readonly Event[],
): (Event & { arrival: Arrival })[] =>
  events.filter((event): event is Event & { arrival: Arrival } => event.arrival !== undefined);

const ownColumns = (events: readonly (ArrivedEvent & { arrival: Arrival })[]) => ({
  ...columnsOf(
    events.map(({ arrival }) => arrival),
    {
      text: "id sourceId externalId signatureKey redeliveredFrom",
      bigint: "bodyWhole",
    },
  ),
  environment_id: column.text(events.map((e) => e.environmentId)),
  event_id: column.text(events.map((e) => e.id)),
  event_name: column.text(events.map((e) => e.name)),
  created_at: column.bigint(events.map(({ arrival }) => arrival.at)),
  request_headers: column.text(events.map(({ arrival }) => arrival.headers)),
  request_body: column.text(events.map(({ arrival }) => arrival.body)),
});

const insertFrom = (source: Sql): Sql => sql`INSERT INTO webhook_deliveries (environment_id, id, source_id,
    external_id, status, signature_key, event_id, event_name, is_repeat, redelivered_from, body_whole, created_at,
    request_headers, request_body)
  SELECT w.environment_id, w.id, w.source_id, w.external_id, 'accepted', w.signature_key, w.event_id, w.event_name,
    0, w.redelivered_from, w.body_whole, w.created_at, w.request_headers, w.request_body FROM ${source}`;

const proofsOf = <Event extends ArrivedEvent & { arrival: Arrival }>(events: readonly Event[]): Event[] =>
  events.filter(({ arrival }) => typeof arrival.proofKey === "string");

/** Forgotten with the key of the webhook's id. */
const proofsFrom = (
  seams: Seams,
  events: readonly (ArrivedEvent & { arrival: Arrival })[],
  joins: Sql,
): Sql => sql`INSERT INTO idempotency_keys (environment_id, key, kind, function_id, event_id, run_ids, created_at)
  SELECT p.environment_id, p.key, 'emit', NULL, p.event_id, '[]', p.at FROM ${seams.rowsFrom("p", {
    environment_id: column.text(events.map((e) => e.environmentId)),
    key: column.text(events.map(({ arrival }) => arrival.proofKey!)),
    event_id: column.text(events.map((e) => e.id)),
    at: column.bigint(events.map(({ arrival }) => arrival.at + webhookKeyKeptMs - idempotencyKeptMs)),
  })} ${joins}
  ORDER BY p.environment_id, p.key ON CONFLICT (environment_id, key) DO NOTHING`;

/** `arrived`: the deliveries of those events that are written. */
export const arrivalsInserted = (
  seams: Seams,
  events: readonly (ArrivedEvent & { arrival: Arrival })[],
): Ctes => {
  const proven = proofsOf(events);
  return {
    "arrived AS": insertFrom(sql`${seams.rowsFrom("w", ownColumns(events))} ${written("w")}`),
    ...(proven.length > 0 && { "proven AS": proofsFrom(seams, proven, written("p")) }),
  };
};

const written = (of: string): Sql =>
  sql`JOIN alive a ON a.id = ${sql.raw(of)}.event_id JOIN moved m ON m.environment_id = a.environment_id`;

export const insertArrivals = (
  session: SyncSession,
  events: readonly (ArrivedEvent & { arrival: Arrival })[],
): void => {
  session.run(insertFrom(session.seams.rowsFrom("w", ownColumns(events))));
  const proven = proofsOf(events);
  if (proven.length > 0) session.run(proofsFrom(session.seams, proven, sql`WHERE true`));
};
