import { idempotencyKeyBytesMax } from "../../kit/limits.ts";
import { changing, eventNameBytes, kept, ours, type Tables } from "./table.ts";

/** The log of events, their schemas, and streams of entities. */
export const tablesOfLog = {
  events: {
    holds: "the log of each environment; events of entities are kept with their stream",
    endsWith:
      "`SVC_EVENT_RETENTION` or `SVC_EVENT_RETENTION_DAYS`, or the environment's own days, below `heads.retention_floor`, loop `events.expire`",
    // `schema_hash`: the schema that the event was checked by; `schema_breach`: the rule that it broke where
    // that is no reason to refuse it. A row lies in its table whole on libSQL, so that a filter would read
    // megabytes to see a name: there the index by time has all that filters ask.
    columns: `environment_id TEXT NOT NULL, position BIGINT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL,
      version BIGINT NOT NULL, data TEXT NOT NULL, metadata TEXT, source TEXT NOT NULL, at BIGINT NOT NULL,
      idempotency_key TEXT, entity_id TEXT, entity_type TEXT, entity_version BIGINT, run_id TEXT,
      redacted_at BIGINT, schema_hash TEXT, schema_breach TEXT, redacted_by TEXT,
      PRIMARY KEY (environment_id, position)`,
    indexes: [
      "UNIQUE events_by_id (id)",
      { postgres: "events_by_time (environment_id, at, id)" },
      "events_by_name (environment_id, name, at)",
      { libsql: "events_by_time_filtered (environment_id, at, id, name, source)" },
      "UNIQUE events_by_entity (environment_id, entity_id, entity_version) WHERE entity_id IS NOT NULL",
      "events_by_run (environment_id, run_id, position) WHERE run_id IS NOT NULL",
    ],
    isClustered: true,
    room: kept,
    purge: { at: 260 },
    texts: { id: ours, name: eventNameBytes },
    exported: {
      in: "events",
      ids: "id run_id",
      leaves:
        "id name source idempotency_key entity_id entity_type run_id schema_hash schema_breach position version at entity_version redacted_at redacted_by",
      json: "data metadata",
    },
  },
  // After the events in an export: retention may have gone on while they were read.
  heads: {
    holds: "the end of each log, its epoch and its floor",
    endsWith: "the environment is deleted, in the same commit",
    // `schedules_version`: the definitions that the schedules of the environment were last made from.
    columns: `environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL, last_at BIGINT NOT NULL,
      definitions_version BIGINT NOT NULL, retention_floor BIGINT NOT NULL, epoch BIGINT NOT NULL,
      schedules_version BIGINT NOT NULL DEFAULT -1`,
    indexes: ["heads_unscheduled (environment_id) WHERE schedules_version <> definitions_version"],
    room: changing,
    purge: { at: 10 },
    exported: {
      in: "events",
      key: "environment_id",
      leaves: "position last_at retention_floor",
      stays: "definitions_version schedules_version epoch",
    },
  },
  idempotency_keys: {
    holds: "keys of emits, invokes and publishes",
    endsWith: "24 hours after use, of a webhook 72, loop `events.keys`",
    columns: `environment_id TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, function_id TEXT,
      event_id TEXT NOT NULL, run_ids TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (environment_id,
      key)`,
    indexes: ["idempotency_keys_by_time (created_at)"],
    isClustered: true,
    purge: { at: 190 },
    texts: { key: 1 + idempotencyKeyBytesMax },
    exported: "of a day",
  },
  event_schemas: {
    holds: "schemas of events, by name and version",
    endsWith: "their owner deletes them",
    columns: `environment_id TEXT NOT NULL, event_name TEXT NOT NULL, version BIGINT NOT NULL,
      hash TEXT NOT NULL, schema_json TEXT NOT NULL, bytes BIGINT NOT NULL, description TEXT NOT NULL,
      created_at BIGINT NOT NULL, PRIMARY KEY (environment_id, event_name, version)`,
    purge: { at: 125 },
    texts: { event_name: eventNameBytes },
    exported: {
      in: "schemas",
      leaves: "event_name hash schema_json description version bytes created_at",
    },
  },
  streams: {
    holds: "one row an entity: the type and version of its stream",
    endsWith: "nothing: a deleted stream keeps its row, so that nothing is appended under its id again",
    // `version` counts its events. `deleted_at` is for good: nothing is appended after it. `purge_from` is
    // the version from which payloads are still to be overwritten.
    columns: `environment_id TEXT NOT NULL, entity_id TEXT NOT NULL, entity_type TEXT NOT NULL,
      version BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, deleted_at BIGINT,
      purge_from BIGINT, PRIMARY KEY (environment_id, entity_id)`,
    indexes: [
      "streams_by_type (environment_id, entity_type, entity_id)",
      "streams_to_purge (deleted_at) WHERE purge_from IS NOT NULL",
      "streams_to_purge_by_environment (environment_id, (deleted_at + 0)) WHERE purge_from IS NOT NULL",
    ],
    room: "fillfactor = 70",
    purge: { at: 262 },
    texts: { entity_type: 128 },
    exported: {
      in: "streams",
      leaves: "entity_id entity_type version created_at updated_at deleted_at purge_from",
    },
  },
  snapshots: {
    holds: "states of entities at versions of their streams",
    endsWith:
      "ten newer ones of their stream, a redaction at or before their version, or a purge of the stream",
    columns: `environment_id TEXT NOT NULL, entity_id TEXT NOT NULL, entity_version BIGINT NOT NULL,
      id TEXT NOT NULL, state TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (environment_id,
      entity_id, entity_version)`,
    isClustered: true,
    purge: { at: 264, under: "streams" },
    exported: {
      in: "snapshots",
      ids: "id",
      leaves: "entity_id id entity_version created_at",
      json: "state",
    },
  },
} as const satisfies Tables;
