import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { isNight } from "../support/night.ts";
import { plant } from "../support/plant.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const eventsCount = 400;
const data = JSON.stringify({ text: "x".repeat(2_000) });
const three = "FROM events a, events b, events c";
const many = (count: number, text: (place: number) => string) =>
  Array.from({ length: count }, (_, place) => text(place)).join(", ");

/** Each makes gigabytes of a few kilobytes where nothing bounds it. */
const dear: Record<string, string> = {
  "one gathering": `SELECT length(string_agg(CAST(a.data AS text) || '0', '')) ${three}`,
  "twelve gatherings": `SELECT ${many(12, (place) => `length(string_agg(CAST(a.data AS text) || '${place}', ''))`)} ${three}`,
  "gathering with long signs between": `SELECT length(string_agg('', '${"y".repeat(7_000)}')) ${three}`,
  "gathering in each of many groups": `SELECT a.id, length(string_agg(CAST(b.data AS text), '')) ${three} GROUP BY a.id`,
  "gathering in a window": `SELECT length(string_agg(CAST(a.data AS text), '') OVER (ORDER BY a.id)) ${three}`,
  "a text that doubles": `WITH RECURSIVE t(n, x) AS (SELECT 1, CAST(data AS text) FROM events WHERE sequence = 1
    UNION ALL SELECT n + 1, x || x FROM t WHERE n < 30) SELECT max(length(x)) FROM t`,
  "a text that concat doubles": `WITH RECURSIVE t(n, x) AS (SELECT 1, CAST(data AS text) FROM events
    UNION ALL SELECT n + 1, concat(x, x) FROM t WHERE n < 30) SELECT max(length(x)) FROM t`,
};
const onlyPostgres: Record<string, string> = {
  "an array": `SELECT length(CAST(array_agg(CAST(a.data AS text)) AS text)) ${three}`,
  JSON: `SELECT length(CAST(json_agg(a.data) AS text)) ${three}`,
};

const rssOf = (pid: string): number => {
  try {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1024;
  } catch {
    return 0;
  }
};
/** Of the processes that run SQL: backends that say so, and libSQL's own program. */
const largest = (): number => {
  let most = 0;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    let command = "";
    try {
      command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
    } catch {}
    if (/^postgres: svc_\w+_r |libsql-program/.test(command)) most = Math.max(most, rssOf(pid));
  }
  return most;
};

describe.each(engines)("memory of queries on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    await plant(server.running.domain.store, "events", eventsCount, {
      ...{
        environment_id: "'env_default'",
        position: "n",
        id: "'evt_' || n",
        version: "1",
        at: `${Date.now()}`,
      },
      ...{ name: "'large'", data: `'${data}'`, source: "'api'" },
    });
  }, 120_000);
  afterAll(() => server.stop());

  // PostgreSQL ends each of these at a bound of memory, and time shall not come first on a busy machine.
  const timeout_ms = engine === "postgres" ? 25_000 : isNight ? 3_000 : 1_500;
  const ask = (query: string) => server.rpc("QueryService", "ExecuteSQL", { query, timeout_ms });

  test.each(Object.entries({ ...dear, ...(engine === "postgres" && onlyPostgres) }))(
    "%s",
    async (_, query) => {
      let most = 0;
      let over = false;
      const asked = ask(query).finally(() => {
        over = true;
      });
      const look = () => {
        most = Math.max(most, largest());
        return over;
      };
      await until(look, { about: "the end of the query", everyMs: 20 });
      const { status, body } = await asked;
      expect([400, 429, 504]).toContain(status);
      if (engine === "postgres")
        expect(String(body.message)).toMatch(/bytes|rows|allowed 4 times|temporary file size/);
      expect(most).toBeLessThan(300);
    },
    30_000,
  );

  test("what is gathered within the bounds is whole", async () => {
    // SQLite has no DISTINCT beside signs between.
    const names = engine === "postgres" ? "string_agg(DISTINCT name, ',' ORDER BY name)" : "min(name)";
    const { status, body } = await ask(`SELECT ${names}, count(*), length(string_agg(id, ',')) FROM events`);
    const { body: none } = await ask("SELECT string_agg(name, ',') FROM events WHERE name = 'none'");
    const ids = Array.from({ length: eventsCount }, (_, place) => `evt_${place + 1}`).join(",");
    expect([status, body.rows[0].values]).toEqual([200, ["large", String(eventsCount), String(ids.length)]]);
    expect(none.rows[0].values).toEqual([""]);
  });
});
