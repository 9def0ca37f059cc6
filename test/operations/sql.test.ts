import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient } from "@connectrpc/connect";
import { QueryService } from "../../src/gen/svc/v1/query_pb.ts";
import { protocols, transportOf } from "../attack/doors-in.ts";
import { freePort } from "../support/process.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("SQL on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { grpcPort: await freePort() } });
    await server.rpc("SvcService", "Emit", { event: "order.placed", data: { total: 3, who: "a" } });
    await server.rpc("SvcService", "Emit", { event: "order.paid", data: { total: 4 } });
  }, 120_000);
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

  test("numbers may be negative, large and decimal", async () => {
    const numbers = ["-1.5", "-3000000000", "-.5", "3000000000", "-7"];
    const { status, body } = await ask(
      `SELECT ${numbers.map((one, at) => `1 - ${one} AS n${at}`).join(", ")}`,
    );
    expect(status).toBe(200);
    expect(body.rows[0].values.map(Number)).toEqual(numbers.map((one) => 1 - Number(one)));
    const found = await ask(
      "SELECT count(*) AS n FROM events WHERE sequence > -0.5 AND sequence <> -1 - -2.5",
    );
    expect(found.body.rows).toEqual([{ values: ["2"] }]);
  });

  test("LIKE tells letters apart, ILIKE does not, and a backslash escapes, on both engines", async () => {
    const holds = async (test: string) =>
      (await ask(`SELECT count(*) FROM events WHERE ${test}`)).body.rows[0].values[0];
    for (const [test, count] of [
      ["name LIKE 'order.p%'", "2"],
      ["name LIKE 'Order.p%'", "0"],
      ["name NOT LIKE 'ORDER%'", "2"],
      ["name ILIKE 'Order.PAID'", "1"],
      ["name NOT ILIKE 'Order.PAID'", "1"],
      ["'10%' LIKE '10\\%' AND NOT '10x' LIKE '10\\%'", "2"],
      ["'10%' ILIKE '10X%' ESCAPE 'X'", "2"],
    ] as const)
      expect([test, await holds(test)]).toEqual([test, count]);
  });

  test.each(protocols)("the same over %s", async (protocol) => {
    const client = createClient(QueryService, transportOf(protocol, server));
    const headers = { authorization: `Bearer ${server.adminKey}` };
    const answer = await client.executeSQL(
      { query: "SELECT name, NULL AS nothing FROM events ORDER BY sequence", maxRows: 1 },
      { headers },
    );
    expect([answer.columns, answer.rows[0]?.values, answer.rows[0]?.nulls]).toEqual([
      ...[["name", "nothing"], ["order.placed", ""], [1]],
    ]);
    expect([answer.rows.length, answer.totalRows, answer.truncated]).toEqual([1, 1, true]);
  });
});
