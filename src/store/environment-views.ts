import type { StoreEngine } from "./store.ts";

/** Entities of the platform itself, which no tenant sees. */
const ownEntities = "svc:";

const timeOf = (engine: StoreEngine, column: string): string =>
  engine === "postgres"
    ? `pg_catalog.to_timestamp(${column} / 1000.0)`
    : `strftime('%Y-%m-%dT%H:%M:%fZ', ${column} / 1000.0, 'unixepoch')`;

const jsonOf = (engine: StoreEngine, column: string): string =>
  engine === "postgres" ? `${column}::json` : column;

/** The words of a run's status as all other answers have them. */
const runStatus = `CASE WHEN r.status <> 'active' THEN r.status
  WHEN x.state IN ('leased', 'resuming') THEN 'running' WHEN x.state = 'retrying' THEN 'waiting'
  WHEN x.state IN ('sleeping', 'waiting', 'invoking', 'held') THEN 'paused' ELSE 'waiting_for_capacity' END`;

/**
 * What queries see of an environment's own rows. `base` names a table of the store; `environment` is a
 * literal of its id.
 */
export function environmentViews(
  engine: StoreEngine,
  { base, environment }: { base: (table: string) => string; environment: string },
): Record<"runs" | "steps" | "events" | "functions", string> {
  const time = (column: string, name: string) => `${timeOf(engine, column)} AS ${name}`;
  return {
    runs: `SELECT r.id, r.function_id, r.function_version, ${runStatus} AS status,
        COALESCE(x.attempt, r.attempt) AS attempt, r.max_attempts, r.event_id, r.event_name, r.mode,
        r.output, r.error, r.parent_run_id, ${time("r.created_at", "created_at")},
        ${time("COALESCE(x.started_at, r.started_at)", "started_at")}, ${time("r.ended_at", "ended_at")},
        ${time("r.updated_at", "updated_at")}
      FROM ${base("runs")} r LEFT JOIN ${base("executions")} x ON x.run_id = r.id
      WHERE r.environment_id = ${environment}`,
    steps: `SELECT s.run_id, s.step_id, s.name, s.type, s.sequence, s.status, s.output, s.error, s.attempt,
        s.duration_ms, ${time("s.created_at", "created_at")}, ${time("s.started_at", "started_at")},
        ${time("s.ended_at", "ended_at")}
      FROM ${base("steps")} s WHERE s.environment_id = ${environment}`,
    events: `SELECT e.id, e.position AS sequence, e.name, ${jsonOf(engine, "e.data")} AS data,
        ${jsonOf(engine, "e.metadata")} AS metadata, e.source, ${time("e.at", "timestamp")}, e.version,
        e.entity_id, e.entity_type, e.entity_version
      FROM ${base("events")} e WHERE e.environment_id = ${environment}
        AND (e.entity_id IS NULL OR substr(e.entity_id, 1, ${ownEntities.length}) <> '${ownEntities}')`,
    functions: `SELECT f.id, f.name, f.version, f.status, f.mode, ${time("f.created_at", "created_at")},
        ${time("f.updated_at", "updated_at")}
      FROM ${base("functions")} f WHERE f.environment_id = ${environment}`,
  };
}
