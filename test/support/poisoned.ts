import { sql } from "../../src/kit/sql.ts";
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";
import type { Store } from "../../src/store/store.ts";
import { tables } from "../../src/store/tables/index.ts";
import { furnishOrg } from "./furnished-org.ts";
import { columnsOf, plant } from "./plant.ts";
import { type Home, makeHome, startTestServer } from "./server.ts";
import { until } from "./until.ts";
import type { World } from "./worlds.ts";

const resting = createFunction({ id: "resting", event: "resting" }, async ({ event, step }) => {
  const { how } = event.data as { how: string };
  if (how === "sleep") await step.sleep("long", "1h");
  if (how === "event") await step.waitForEvent("never", { match: "data.n > 3", timeout: "1h" });
  if (how === "key") await step.waitForKey("same", "never", { equals: { is: "free" }, timeout: "1h" });
  if (how === "retry") throw new Error("later");
  await step.invoke("resting" as never, { input: { how: "sleep" }, timeout: "1h" });
});
const hows = ["sleep", "sleep", "event", "key", "child", "retry"];

/** Every kind of thing that waits for a loop, in an org beside the default one. */
async function furnish(home: Home, engine: World["engine"], spared: ReadonlySet<string>): Promise<string> {
  const server = await startTestServer({ engine, home });
  try {
    const { environmentId, key, api } = await furnishOrg(server, "poisoned");
    const client = createClient({ url: server.url, apiKey: key });
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    const worker = createWorker({ client, functions: [resting], handleSignals: false, log });
    await worker.start();
    for (const how of hows) await client.emit("resting", { how });
    const { runs } = await client.listRuns({ functionId: "resting" });
    for (const { id } of runs)
      await until(
        async () => !["running", "waiting_for_capacity"].includes((await client.getRun(id)).status),
        {
          about: "a run to rest",
        },
      );
    await api("/svc.v1.ProjectionService/CreateSQLProjection", {
      body: {
        name: "rows",
        tableSql: "CREATE TABLE proj_rows (id text PRIMARY KEY)",
        eventHandlers: { "same.event": "INSERT INTO proj_rows (id) VALUES (:event_id)" },
      },
    });
    await api("/svc.v1.WebhookEndpointService/CreateWebhookEndpoint", {
      body: {
        name: "filtered",
        url: "https://x.example.test/",
        pattern: "events:same.*",
        filter: "data.n > 1",
      },
    });
    await client.registerFunction({ id: "unread", triggers: [{ event: "unread" }] });
    await worker.drain({ timeoutMs: 1_000 });
    await interrupt(server.running.domain.store, environmentId);
    await poison(server.running.domain.store, environmentId, spared);
    await unreadFunction(server.running.domain.store, environmentId);
    return key;
  } finally {
    await server.stop();
  }
}

/** As a node leaves runs that dies between the two halves of a resume, and one whose worker's report was refused. */
async function interrupt(store: Store, environmentId: string): Promise<void> {
  const [resumed, refused] = await store.all<{ run_id: string; history_count: number }>(
    sql`SELECT run_id, history_count FROM executions WHERE environment_id = ${environmentId} AND state = 'sleeping'
      AND run_id NOT IN (SELECT id FROM runs WHERE parent_run_id IS NOT NULL) ORDER BY run_id LIMIT 2`,
  );
  await plant(store, "resumes", 1, {
    ...{ run_id: `'${resumed!.run_id}'`, environment_id: `'${environmentId}'`, plan: "'{'" },
  });
  const child = await store.one<{ id: string }>(
    sql`SELECT id FROM runs WHERE environment_id = ${environmentId} AND parent_run_id IS NOT NULL AND status = 'active'`,
  );
  await store.write(async (session) => {
    await session.run(sql`DELETE FROM executions WHERE run_id = ${child!.id}`);
    await session.run(
      sql`UPDATE runs SET status = 'failed', error = '{', ended_at = 1 WHERE id = ${child!.id}`,
    );
    await session.run(sql`INSERT INTO child_ends (child_run_id, environment_id, ended_at)
      VALUES (${child!.id}, ${environmentId}, 1)`);
    await session.run(sql`UPDATE executions SET state = 'resuming' WHERE run_id = ${resumed!.run_id}`);
    await session.run(sql`UPDATE executions SET state = 'leased' WHERE run_id = ${refused!.run_id}`);
    await session.run(sql`UPDATE run_history SET type = 'run.report_refused', detail = '{'
      WHERE run_id = ${refused!.run_id} AND sequence = ${refused!.history_count}`);
  });
}

/** One function among others that can be read. */
const unreadFunction = (store: Store, environmentId: string) =>
  store.write(async (session) => {
    for (const [table, id] of [
      ["functions", "id"],
      ["function_versions", "function_id"],
    ])
      await session.run(sql`UPDATE ${sql.raw(table!)} SET definition = '{'
        WHERE environment_id = ${environmentId} AND ${sql.raw(id!)} = 'unread'`);
  });

const due = /^(due|wake|fires|closes|next|starts|sleep_until|retry|asked|look)(_at)?$/;
const expressions = /^(expression|filter|condition|pattern)$/;

/** What stands in rows of the environment as JSON can no longer be read, and is due at once. */
async function poison(store: Store, environmentId: string, spared: ReadonlySet<string>): Promise<void> {
  for (const table of Object.keys(tables).filter((one) => !spared.has(one)))
    await store.write(async (session) => {
      const columns = await columnsOf(session, table);
      if (!columns.some(({ name }) => name === "environment_id")) return;
      for (const { name, type } of columns) {
        const set = (value: string, where: string) =>
          session.run(sql`UPDATE ${sql.raw(table)} SET ${sql.raw(`${name} = ${value}`)}
            WHERE environment_id = ${environmentId} AND ${sql.raw(where)}`);
        if (/text/i.test(type) && expressions.test(name)) await set("'(('", `${name} <> ''`);
        else if (/text/i.test(type)) await set("'{'", `(${name} LIKE '{%' OR ${name} LIKE '[%')`);
        // A parent whose time is over is not told of its child's end.
        else if (due.test(name))
          await set("1", table === "executions" ? `${name} > 1 AND state <> 'invoking'` : `${name} > 1`);
      }
    });
}

/** What all calls of an environment read: without it none of its own promises can be kept. */
const ofAll = new Set([
  "functions",
  "function_versions",
  "api_keys",
  "events",
  "event_schemas",
  "idempotency_keys",
  "auth_audit",
]);

const worldOf = (
  name: string,
  engine: World["engine"],
  around: (home: Home) => Promise<{ key?: string }>,
): World => ({
  name: `${name}, on ${engine}`,
  engine,
  async around(closers) {
    const home = await makeHome(engine);
    closers.push(home.remove);
    return { home, ...(await around(home)) };
  },
});

/** A neighbour's rows cannot be read, in every table. */
export const brokenNeighbour = (engine: World["engine"]): World =>
  worldOf("a neighbour whose rows are broken", engine, async (home) => {
    await furnish(home, engine, new Set());
    return {};
  });

/** Rows of one's own that only loops read cannot be read. */
export const brokenBeside = (engine: World["engine"]): World =>
  worldOf("broken rows beside one's own", engine, async (home) => ({
    key: await furnish(home, engine, ofAll),
  }));
