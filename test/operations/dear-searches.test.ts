import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { livedTime } from "../support/lived.ts";
import { plant } from "../support/plant.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const greek = "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώ";
const runsCount = 60;
const eventsCount = 20_000;

describe.each(engines)("searches through much text on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { store } = server.running.domain;
    const own = { environment_id: "'env_default'" };
    const padded = (prefix: string) => `'${prefix}' || substr(CAST(100000000 + n AS TEXT), 2)`;
    const at = Date.now() - 3_600_000;
    const large = "x".repeat(1_000_000);
    await plant(store, "runs", runsCount, {
      ...{
        ...own,
        id: padded("run_0"),
        function_id: "'f'",
        function_version: "1",
        status: "'failed'",
        trouble: "'failed'",
      },
      ...{ created_at: `${at} + n`, error: `'{"message":"begins ${large} ends"}'` },
    });
    // As many places of a text begin alike as there may be, and letters of which each has another case.
    const names = ["a".repeat(250), greek.repeat(4)];
    await plant(store, "events", eventsCount, {
      ...{
        ...own,
        position: "1000000 + n",
        id: padded("evt_0"),
        version: "1",
        data: "'{}'",
        at: `${at} + n`,
      },
      name: `CASE WHEN n % 2 = 0 THEN '${names[0]}' ELSE '${names[1]}' END`,
      source: "'api'",
    });
  }, 120_000);
  afterAll(() => server.stop());

  const list = async (body: object) => {
    const { status, body: answer } = await server.rpc("SvcService", "ListRuns", body);
    return { status, runs: (answer as { runs?: unknown[] }).runs?.length ?? 0 };
  };
  const events = (search: string) =>
    server.api(`/api/v1/events?limit=1&search=${encodeURIComponent(search)}`);

  test("a failure is found by what stands near its beginning", async () => {
    expect(await list({ errorText: "BEGINS xxx", limit: 5 })).toEqual({ status: 200, runs: 5 });
    expect(await list({ errorText: "x ends", limit: 5 })).toEqual({ status: 200, runs: 0 });
  });

  test("letters beyond ASCII, as many as a search may have, are no defect", async () => {
    const search = greek.toUpperCase();
    for (const body of [{ search }, { errorText: search }, { eventName: search }])
      expect((await list({ ...body, limit: 1 })).status).toBe(200);
    const paths = ["events?search=", "events?name="];
    for (const path of paths)
      expect((await server.api(`/api/v1/${path}${encodeURIComponent(search)}`)).status).toBe(200);
    expect((await server.rpc("SvcService", "ListFunctions", { name: search })).status).toBe(200);
    expect((await server.rpc("EntityStreamService", "ListStreams", { search })).status).toBe(200);
    expect((await events(greek.slice(3, 9).toUpperCase())).body.events).toHaveLength(1);
    const preview = await server.api("/api/v1/repairs/preview", {
      body: { action: "resume", filter: { search } },
    });
    expect([preview.status, preview.body]).toEqual([200, expect.anything()]);
  });

  test("ten at once leave others their turn", async () => {
    const lived = await livedTime(server.home.place.databaseUrl);
    const dear: (() => Promise<unknown>)[] = [
      () => list({ errorText: "zzz", limit: 1 }),
      () => events(`${"a".repeat(125)}b`),
      () => events(greek.toUpperCase().slice(0, 15)),
    ];
    try {
      for (const one of dear) {
        await one();
        let over = false;
        const searches = Promise.all(Array.from({ length: 10 }, one)).then(() => {
          over = true;
        });
        let worst = 0;
        while (!over) {
          const before = lived.now();
          await fetch(`${server.url}/ready`);
          worst = Math.max(worst, lived.now() - before);
        }
        await searches;
        expect(worst).toBeLessThan(100);
      }
    } finally {
      await lived.stop();
    }
  }, 120_000);
});
