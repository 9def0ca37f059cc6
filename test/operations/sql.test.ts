import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("SQL on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    await server.rpc("SvcService", "Emit", { event: "order.placed", data: { total: 3, who: "a" } });
    await server.rpc("SvcService", "Emit", { event: "order.paid", data: { total: 4 } });
  }, 30_000);
  afterAll(() => server?.stop());

  const ask = (query: string, more: object = {}) =>
    server.rpc("QueryService", "ExecuteSQL", { query, ...more });

  test("a query answers values as text, and says which are null", async () => {
    const { status, body } = await ask(
      "SELECT name, data->>'who' AS who, sequence FROM events ORDER BY sequence",
    );
    expect([status, body]).toEqual([
      200,
      {
        columns: ["name", "who", "sequence"],
        rows: [{ values: ["order.placed", "a", "1"] }, { values: ["order.paid", "", "2"], nulls: [1] }],
        totalRows: 2,
      },
    ]);
    const rest = await server.api("/api/v1/sql", {
      body: { query: "SELECT id FROM events LIMIT 1", max_rows: 1 },
    });
    expect([rest.status, rest.body.total_rows, rest.body.truncated]).toEqual([200, 1, false]);
  });
});
