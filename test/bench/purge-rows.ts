import { sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";

/** Rows made in one transaction, so that seeding needs little memory. */
const sliceRows = 20_000;

async function columnsOf(session: Session, table: string): Promise<string[]> {
  const rows = await session.all<{ name: string }>(
    session.seams.engine === "postgres"
      ? sql`SELECT column_name AS name FROM information_schema.columns WHERE table_name = ${table}
          AND table_schema = current_schema()`
      : sql`SELECT name FROM pragma_table_info(${table})`,
  );
  return rows.map(({ name }) => name);
}

/** Copies the rows of a table that belong to one run, or are one event, with other keys: one copy for each number. */
async function copy(
  session: Session,
  table: string,
  { where, from, to, changed }: { where: string; from: number; to: number; changed: Record<string, string> },
): Promise<void> {
  const columns = await columnsOf(session, table);
  const values = columns.map((name) => changed[name] ?? `t.${name}`);
  await session.run(
    sql`WITH RECURSIVE s(n) AS (SELECT ${sql.bigint(from)} UNION ALL SELECT n + 1 FROM s WHERE n < ${sql.bigint(to)})
      INSERT INTO ${sql.raw(table)} (${sql.raw(columns.join(", "))})
      SELECT ${sql.raw(values.join(", "))} FROM ${sql.raw(table)} t, s WHERE ${sql.raw(where)}`,
  );
}

const numbered = (prefix: string, width = 12) =>
  `'${prefix}' || substr('${"0".repeat(width)}' || CAST(n AS TEXT), length(CAST(n AS TEXT)) + 1)`;

/** One run that is over, with everything that belongs to it. */
export interface Template {
  environmentId: string;
  runId: string;
  eventId: string;
}

/** How each table's rows of the template are found, and what a copy changes in them. */
function tablesOf({ environmentId, runId, eventId }: Template) {
  const tag = environmentId.slice(-6);
  const run = numbered(`run_${tag}`);
  const event = numbered(`evt_${tag}`);
  return {
    events: { where: `t.id = '${eventId}'`, changed: { id: event, position: "1000 + n" } },
    runs: {
      where: `t.id = '${runId}'`,
      changed: { id: run, event_id: event, created_at: "t.created_at + n" },
    },
    steps: { where: `t.run_id = '${runId}'`, changed: { run_id: run } },
    run_history: { where: `t.run_id = '${runId}'`, changed: { run_id: run } },
    idempotency_keys: {
      where: `t.event_id = '${eventId}'`,
      changed: { event_id: event, key: numbered("key"), run_ids: `'["' || ${run} || '"]'` },
    },
  };
}

export async function rowsOf(store: Store, template: Template): Promise<number> {
  let rows = 0;
  for (const [table, { where }] of Object.entries(tablesOf(template))) {
    const found = await store.one<{ count: number }>(
      sql`SELECT count(*) AS count FROM ${sql.raw(table)} t WHERE ${sql.raw(where)}`,
    );
    rows += Number(found?.count ?? 0);
  }
  return rows;
}

/** Makes so many more of it. */
export async function multiply(store: Store, template: Template, count: number): Promise<void> {
  const runsAtOnce = Math.max(1, Math.floor(sliceRows / (await rowsOf(store, template))));
  for (let from = 1; from <= count; from += runsAtOnce) {
    const to = Math.min(count, from + runsAtOnce - 1);
    await store.write(async (session) => {
      for (const [table, { where, changed }] of Object.entries(tablesOf(template)))
        await copy(session, table, { where, changed, from, to });
      await session.run(
        sql`UPDATE heads SET position = ${sql.bigint(1000 + to)} WHERE environment_id = ${template.environmentId}`,
      );
    });
  }
}

const filled = ["events", "runs", "steps", "run_history", "idempotency_keys"];

/** Rows of the environment, in the tables that `multiply` fills. */
export async function countRows(store: Store, environmentId: string): Promise<number> {
  let rows = 0;
  for (const table of filled) {
    const found = await store.one<{ count: number }>(
      sql`SELECT count(*) AS count FROM ${sql.raw(table)} WHERE environment_id = ${environmentId}`,
    );
    rows += Number(found?.count ?? 0);
  }
  return rows;
}

/** Whether one is left, by indexes alone: runs go last of what is theirs. */
export async function anyRow(store: Store, environmentId: string): Promise<boolean> {
  for (const table of ["runs", "events"]) {
    const found = await store.one(
      sql`SELECT 1 AS one FROM ${sql.raw(table)} WHERE environment_id = ${environmentId} LIMIT 1`,
    );
    if (found) return true;
  }
  return false;
}
