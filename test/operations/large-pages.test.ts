import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { openLook } from "../../src/domain/log/core/look.ts";
import { pageCharsMax } from "../../src/domain/log/core/service.ts";
import { type Sql, sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("pages of large events on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  test("hold a few of them, and together every one, once", async () => {
    const text = "x".repeat(3_000_000);
    const count = 11;
    for (let number = 0; number < count; number++)
      await server.rpc("SvcService", "Emit", { event: "large.one", data: { number, text } });
    const seen: number[] = [];
    let at = "";
    let pages = 0;
    for (; pages === 0 || at !== ""; pages++) {
      const { body } = await server.api(`/api/v1/events?limit=200${at === "" ? "" : `&cursor=${at}`}`);
      expect(JSON.stringify(body).length).toBeLessThan(pageCharsMax + 3_100_000);
      seen.push(...body.events.map(({ data }: { data: { number: number } }) => data.number));
      at = body.has_next ? body.next_cursor : "";
    }
    expect(seen).toEqual(Array.from({ length: count }, (_, at) => count - 1 - at));
    expect(pages).toBeGreaterThan(count / 3);
    // And back from the oldest.
    const oldest = (await server.api(`/api/v1/events?limit=1&names=large.one`)).body;
    expect(oldest.events[0].data.number).toBe(count - 1);
  }, 120_000);

  test.if(engine === "libsql")(
    "which events a filter shows is read from an index, without a payload",
    async () => {
      const { store } = server.running.domain;
      const plans: string[] = [];
      const explaining = {
        ...store,
        async all(query: Sql) {
          const rows = await store.all<{ detail: string }>(sql`EXPLAIN QUERY PLAN ${query}`);
          plans.push(...rows.map(({ detail }) => detail));
          return [];
        },
        async one(query: Sql) {
          await this.all(query);
          return undefined;
        },
      } as Store;
      const filters = [
        { name: "large" },
        { names: ["large.one"] },
        { sources: ["cron"] },
        { search: "one", since: 1 },
      ];
      for (const filter of filters)
        for (const anchor of [
          undefined,
          { olderThan: { at: 9, id: "e" } },
          { newerThan: { at: 9, id: "e" } },
        ])
          await openLook(explaining, { environmentId: "env_default", ...filter }).keys(anchor, 16);
      expect(
        plans.filter((plan) => /(SEARCH|SCAN) events/.test(plan) && !plan.includes("COVERING INDEX")),
      ).toEqual([]);
    },
  );
});
