import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type OwnedTable, ownedTables } from "../../src/domain/access/tenancy/purge-rows.ts";
import { made } from "../support/made.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const headGoes = "the deletion deletes it at its commit";
const withHead =
  "its maker holds the head of a log or inserts beside it, and the deletion deletes that at its commit";
const ofFound =
  "a loop or a worker's report writes it of a row that it holds; the purge looks until the grace is over";

/** Tables of environments whose rows callers do not make by themselves, and what keeps one from staying. */
const notMade: Record<string, string> = {
  heads: headGoes,
  topic_heads: headGoes,
  api_keys: headGoes,
  environment_databases:
    "the first query of an environment makes it, and shares the environment as all others do",
  events: withHead,
  runs: withHead,
  batches: withHead,
  batch_events: withHead,
  debounces: withHead,
  quotas: withHead,
  start_gates: withHead,
  idempotency_keys: withHead,
  topics: withHead,
  topic_messages: withHead,
  outbox: withHead,
  mirrors: withHead,
  schedules: withHead,
  function_versions: withHead,
  function_history: withHead,
  breakers: ofFound,
  healings: ofFound,
  lanes: ofFound,
  flow_edges: "loop `flow.write` makes it, and shares each environment in the same statement",
  flow_minutes: "as `flow_edges`",
  usage_days: "as `flow_edges`, by loop `usage.write`",
  matchers: ofFound,
};

/** Tables of environments of which nobody said how their makers and a deletion come past each other. */
const unsaid = (owned: readonly OwnedTable[]): string[] =>
  owned
    .filter(({ ofRun, under }) => ofRun === undefined && under === undefined)
    .filter(({ name }) => !(name in made) && !(name in notMade))
    .map(({ name }) => name);

test("each table of environments is made here (test/support/made.ts), stands `under` another, or says in `notMade` why not", () => {
  expect(unsaid(ownedTables)).toEqual([]);
  const owned = new Set(ownedTables.map(({ name }) => name));
  const named = [
    ...Object.keys(made),
    ...Object.keys(notMade),
    ...ownedTables.flatMap(({ under = [] }) => under),
  ];
  expect(named.filter((name) => !owned.has(name))).toEqual([]);
  expect(Object.keys(made).filter((name) => name in notMade)).toEqual([]);
  expect(unsaid([...ownedTables, { name: "bookmarks", at: 1, key: ["environment_id", "name"] }])).toEqual([
    "bookmarks",
  ]);
});

// On libSQL one write is done before the next begins.
describe("what is being made in an environment while it is deleted", () => {
  let server: TestServer;
  let foreign: Bun.SQL;
  beforeAll(async () => {
    server = await startTestServer({ engine: "postgres" });
    foreign = new Bun.SQL(server.home.place.databaseUrl!, { max: 2 });
  }, 120_000);
  afterAll(async () => {
    await foreign?.close();
    await server?.stop();
  });

  test.each(Object.keys(made))("%s: is made before it is gone, or not at all", async (table) => {
    const { body: environment } = await server.api("/api/v1/environments", {
      body: { name: table.replaceAll("_", "-") },
    });
    const { body } = await server.api("/api/v1/apikeys", {
      body: { name: "k", env_id: environment.id, role_ids: ["role_admin"] },
    });
    // By what each waits for: loops of the server may wait for the table, too.
    const makers = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
      AND query ~ 'INSERT INTO ${table}\\M'`;
    const isMaking = async () => (await foreign.unsafe(makers)).length > 0;
    const isWaitedFor = async () =>
      (
        await foreign.unsafe(`SELECT pid FROM pg_stat_activity WHERE datname = current_database()
          AND pg_blocking_pids(pid) && ARRAY(${makers})`)
      ).length > 0;
    for (const [earlier, { ask }] of Object.entries(made)) {
      if (earlier === table) break;
      const { path, ...asked } = ask({ name: "same", marker: "marker" });
      expect((await server.api(path, { ...asked, key: body.key })).status, earlier).toBeLessThan(300);
    }
    const { path, ...asked } = made[table]!.ask({ name: "same", marker: "marker" });
    let isGone = false;
    const blocker = await foreign.reserve();
    await blocker`BEGIN`;
    // Rows can be read and held, but nobody gets one in.
    await blocker.unsafe(`LOCK TABLE ${table} IN SHARE MODE`);
    const making = server.api(path, { ...asked, key: body.key });
    await until(isMaking, { about: "who makes" });
    const deleting = server
      .api(`/api/v1/environments/${environment.id}`, { method: "DELETE" })
      .then((answer) => {
        expect(answer.status).toBe(200);
        isGone = true;
      });
    // Either it waits for who makes, or it is done, and who makes comes too late.
    await until(async () => isGone || (await isWaitedFor()), { about: "the deletion" });
    const expected = isGone ? 404 : "made";
    await blocker`COMMIT`;
    blocker.release();
    const [answer] = await Promise.all([making, deleting]);
    expect(answer.status < 300 ? "made" : answer.status).toBe(expected);
  });
});
