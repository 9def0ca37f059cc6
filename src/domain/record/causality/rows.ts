import type { Instant } from "../../../kit/clock.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export type CausalReader = Pick<Store, "all" | "seams">;

/** What a look is about: ids of one kind in one environment, and how many rows it answers at most. */
export interface CausalLook {
  environmentId: string;
  ids: readonly string[];
  most: number;
}

const idsFrom = ({ seams }: CausalReader, { ids }: CausalLook): Sql =>
  seams.rowsFrom("i", { id: column.text(ids) });

/** Of the event that started it, the run. */
export const runsStartedBy = (reader: CausalReader, look: CausalLook) =>
  reader.all<{ event_id: string; id: string }>(sql`SELECT r.event_id, r.id
    FROM ${idsFrom(reader, look)} JOIN runs r ON r.event_id = i.id
    WHERE r.environment_id = ${look.environmentId} ORDER BY i.ord, r.id LIMIT ${look.most}`);

/** The same of runs that a batch began, but for its first event, which the run names. */
export const runsOfBatchesWith = (reader: CausalReader, look: CausalLook) =>
  reader.all<{ event_id: string; id: string }>(sql`SELECT b.event_id, r.id
    FROM ${idsFrom(reader, look)} JOIN batch_events b ON b.event_id = i.id JOIN runs r ON r.id = b.run_id
    WHERE r.environment_id = ${look.environmentId} AND r.event_id <> b.event_id
    ORDER BY i.ord, r.id LIMIT ${look.most}`);

/** The other way: the further events of the runs. */
export const furtherEventsOf = (reader: CausalReader, look: CausalLook) =>
  reader.all<{ event_id: string; id: string }>(sql`SELECT b.event_id, r.id
    FROM ${idsFrom(reader, look)} JOIN runs r ON r.id = i.id JOIN batch_events b ON b.run_id = r.id
    WHERE r.environment_id = ${look.environmentId} AND r.event_id <> b.event_id
    ORDER BY i.ord, b.position LIMIT ${look.most}`);

/** Endpoints to which an event could not be delivered. */
export const lettersOf = (reader: CausalReader, look: CausalLook) =>
  reader.all<{ event_id: string; endpoint_id: string }>(sql`SELECT l.event_id, l.endpoint_id
    FROM ${idsFrom(reader, look)} CROSS JOIN webhook_endpoints e
      JOIN webhook_dead_letters l ON l.environment_id = e.environment_id AND l.endpoint_id = e.id AND l.event_id = i.id
    WHERE e.environment_id = ${look.environmentId} ORDER BY i.ord, l.endpoint_id LIMIT ${look.most}`);

export const eventsOfRuns = (reader: CausalReader, look: CausalLook) =>
  reader.all<{
    run_id: string;
    id: string;
    entity_id: string | null;
  }>(sql`SELECT e.run_id, e.id, e.entity_id
    FROM ${idsFrom(reader, look)} JOIN events e ON e.run_id = i.id
    WHERE e.environment_id = ${look.environmentId} ORDER BY i.ord, e.position LIMIT ${look.most}`);

export const messagesOfRuns = (reader: CausalReader, look: CausalLook) =>
  reader.all<{ run_id: string; position: number }>(sql`SELECT m.run_id, m.position
    FROM ${idsFrom(reader, look)} JOIN topic_messages m ON m.run_id = i.id
    WHERE m.environment_id = ${look.environmentId} ORDER BY i.ord, m.position LIMIT ${look.most}`);

export const childrenOfRuns = (reader: CausalReader, look: CausalLook) =>
  reader.all<{
    run_id: string;
    step_id: string;
    child_run_id: string;
  }>(sql`SELECT s.run_id, s.step_id, s.child_run_id
    FROM ${idsFrom(reader, look)} JOIN steps s ON s.run_id = i.id
    WHERE s.environment_id = ${look.environmentId} AND s.child_run_id IS NOT NULL
    ORDER BY i.ord, s.sequence LIMIT ${look.most}`);

/** Runs that these runs led to, by invokes and by events: what they did else does not count. */
export const runsLedTo = (reader: CausalReader, look: CausalLook) =>
  reader.all<{ id: string }>(sql`SELECT s.child_run_id AS id
    FROM ${idsFrom(reader, look)} JOIN steps s ON s.run_id = i.id
    WHERE s.environment_id = ${look.environmentId} AND s.child_run_id IS NOT NULL
    UNION SELECT r.id FROM ${idsFrom(reader, look)} JOIN events e ON e.run_id = i.id JOIN runs r ON r.event_id = e.id
    WHERE e.environment_id = ${look.environmentId} AND r.environment_id = ${look.environmentId} LIMIT ${look.most}`);

export type CausalEventRow = RowOf<
  "events",
  "id, name, at, source, metadata, run_id, entity_id, entity_version"
>;

export const eventsById = (reader: CausalReader, look: CausalLook) =>
  reader.all<CausalEventRow>(sql`SELECT e.id, e.name, e.at, e.source, e.run_id, e.entity_id, e.entity_version,
      CASE WHEN e.source = 'webhook' THEN e.metadata END AS metadata
    FROM ${idsFrom(reader, look)} JOIN events e ON e.id = i.id WHERE e.environment_id = ${look.environmentId}`);

export interface CausalRunRow
  extends RowOf<"runs", "id, function_id, status, created_at, event_id, parent_run_id"> {
  state: string | null;
}

export const runsById = (reader: CausalReader, look: CausalLook) =>
  reader.all<CausalRunRow>(sql`SELECT r.id, r.function_id, r.status, x.state, r.created_at, r.event_id, r.parent_run_id
    FROM ${idsFrom(reader, look)} JOIN runs r ON r.id = i.id LEFT JOIN executions x ON x.run_id = r.id
    WHERE r.environment_id = ${look.environmentId}`);

export interface CausalMessageRow {
  position: number;
  topic: string;
  at: Instant;
  run_id: string | null;
}

export const messagesAt = (reader: CausalReader, look: CausalLook) =>
  reader.all<CausalMessageRow>(sql`SELECT m.position, m.topic, m.at, m.run_id
    FROM ${reader.seams.rowsFrom("i", { position: column.bigint(look.ids.map(Number)) })}
      JOIN topic_messages m ON m.position = i.position
    WHERE m.environment_id = ${look.environmentId}`);

export const deliveriesById = (reader: CausalReader, look: CausalLook) =>
  reader.all<{
    id: string;
    source_id: string;
    status: string;
    created_at: Instant;
    event_id: string | null;
  }>(sql`SELECT d.id, d.source_id, d.status, d.created_at, d.event_id
    FROM ${idsFrom(reader, look)} JOIN webhook_deliveries d ON d.id = i.id
    WHERE d.environment_id = ${look.environmentId}`);

export const lettersAt = (
  reader: CausalReader,
  environmentId: string,
  pairs: readonly (readonly [endpointId: string, eventId: string])[],
) =>
  reader.all<{
    endpoint_id: string;
    event_id: string;
    event_name: string;
    entity_id: string | null;
    dead_at: Instant;
  }>(sql`SELECT l.endpoint_id, l.event_id, l.event_name, l.dead_at,
      (SELECT v.entity_id FROM events v WHERE v.id = l.event_id) AS entity_id
    FROM ${reader.seams.rowsFrom("i", {
      endpoint_id: column.text(pairs.map(([endpointId]) => endpointId)),
      event_id: column.text(pairs.map(([, eventId]) => eventId)),
    })} JOIN webhook_dead_letters l ON l.endpoint_id = i.endpoint_id AND l.event_id = i.event_id
    WHERE l.environment_id = ${environmentId}`);

export const stepOf = async (
  reader: CausalReader,
  environmentId: string,
  [runId, stepId]: readonly [string, string],
) =>
  (
    await reader.all<{
      name: string;
      status: string;
      created_at: Instant;
      child_run_id: string | null;
    }>(sql`SELECT name, status, created_at, child_run_id FROM steps
    WHERE run_id = ${runId} AND step_id = ${stepId} AND environment_id = ${environmentId}`)
  )[0];
