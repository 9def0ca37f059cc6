import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { waitingOfOneMax } from "../../src/store/environment-databases.ts";
import { isNight } from "../support/night.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const endless =
  "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) SELECT count(*) FROM n";

describe.each(engines)("seats for queries on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    // The first one makes the database of the environment.
    expect((await ask("SELECT 1 AS one")).status).toBe(200);
  }, 120_000);
  afterAll(() => server.stop());

  const ask = (query: string, timeout_ms = 5_000, options: CallOptions = {}) =>
    server.rpc("QueryService", "ExecuteSQL", { query, timeout_ms }, options);

  test.each(isNight ? [1, 4] : [4])(
    "%d endless ones leave one to quick ones",
    async (count) => {
      const leaving = new AbortController();
      const { signal } = leaving;
      let ended = 0;
      const held = Array.from({ length: count }, () =>
        ask(endless, 25_000, { signal }).then(
          () => ended++,
          () => {},
        ),
      );
      const from = performance.now();
      await until(() => performance.now() - from > 100 + 300 * (count - 1), { about: "their seats" });
      // One that takes longer than a quick one may, on a busy machine, waits for the others: it is asked again.
      const isAnswered = async () => (await ask("SELECT count(*) FROM events", 1_000)).status === 200;
      const about = "an answer beside the endless ones";
      await Promise.all(Array.from({ length: 4 }, () => until(isAnswered, { about, deadlineMs: 20_000 })));
      expect(ended).toBe(0);
      leaving.abort();
      await Promise.all(held);
    },
    60_000,
  );

  test("texts of one key that are dear to read leave the node to others", async () => {
    const made = await server.api("/api/v1/apikeys", { body: { name: "v", role_ids: ["role_viewer"] } });
    expect(made.status).toBe(201);
    const viewer = { key: made.body.key };
    let asked = 0;
    const dear = () =>
      server.rpc(
        "QueryService",
        "ExecuteSQL",
        { query: `SELECT nope(${asked++}${",1".repeat(3_990)})` },
        viewer,
      );
    const refused = await until(
      async () => {
        const answers = await Promise.all(Array.from({ length: 8 }, dear));
        return answers.find(({ status }) => status === 429);
      },
      { about: "a refusal", everyMs: 0 },
    );
    expect(refused.body.message).toContain("SQL texts of this key take too long");
    expect(refused.headers.get("retry-after")).toBe("1");
    expect((await ask("SELECT 2 AS two")).status).toBe(200);
  }, 60_000);

  test.if(isNight)(
    "so do the texts of projections",
    async () => {
      const made = await server.api("/api/v1/apikeys", { body: { name: "p", role_ids: ["role_admin"] } });
      expect(made.status).toBe(201);
      const own = { key: made.body.key };
      const tableSql = "CREATE TABLE proj_dear (id TEXT PRIMARY KEY, n INTEGER)";
      let asked = 0;
      const dear = () => {
        const text = `INSERT INTO proj_dear (id, n) VALUES (:event_id, nope(${asked++}${",1".repeat(3_900)}))`;
        const eventHandlers = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`dear.e${n}`, text]));
        return server.rpc(
          "ProjectionService",
          "CreateSQLProjection",
          { name: "dear", tableSql, eventHandlers },
          own,
        );
      };
      const refused = await until(
        async () => {
          const answer = await dear();
          return answer.status === 429 && answer;
        },
        { about: "a refusal", everyMs: 0 },
      );
      expect(refused.body.message).toContain("SQL texts of this key take too long");
    },
    60_000,
  );

  test("what waits has an end", async () => {
    const held = Array.from({ length: 4 + waitingOfOneMax }, () => ask(endless, 500));
    const asked = Array.from({ length: 8 }, () => ask("SELECT 1 AS one", 500));
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    expect(statuses).toContain(429);
    const all = (await Promise.all(held)).map(({ status }) => status);
    expect(new Set(all)).toEqual(new Set([429, 504]));
  }, 120_000);
});
