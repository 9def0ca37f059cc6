import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

// One such row broke every emit, poll and list of its environment.
describe.each(engines)("a function that cannot be read, on %s", (engine) => {
  let server: TestServer;
  const rpc = (method: string, body: object) => server.rpc("SvcService", method, body);
  const register = (id: string) => rpc("RegisterFunction", { id, triggers: [{ event: id }] });
  const runsOf = async (event: string) => (await rpc("Emit", { event, data: {} })).body.runIds ?? [];
  const nextJob = () =>
    until(async () => (await server.api("/api/v1/workers/w/jobs?available=1")).body?.jobs?.[0], {
      about: "a job",
    });
  const unread = async () =>
    (await server.api("/api/v1/integrity")).body.checks.find(
      ({ name }: { name: string }) => name === "functions.unread",
    );

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    for (const id of ["broken", "sound"]) expect((await register(id)).status).toBe(200);
    await server.api("/api/v1/workers/w/register", { body: { function_ids: ["broken", "sound"] } });
    await server.running.domain.store.write(async (session) => {
      await session.run(sql`UPDATE functions SET definition = '{' WHERE id = 'broken'`);
      await session.run(sql`UPDATE function_versions SET definition = '{' WHERE function_id = 'broken'`);
      await session.run(sql`UPDATE heads SET definitions_version = definitions_version + 1`);
    });
  }, 120_000);
  afterAll(() => server.stop());

  test("is named, and holds up no other", async () => {
    expect(await runsOf("sound")).toHaveLength(1);
    expect(await runsOf("broken")).toEqual([]);
    expect((await nextJob()).function_id).toBe("sound");
    const { functions } = (await rpc("ListFunctions", {})).body;
    expect(functions).toMatchObject([
      { id: "sound" },
      { id: "broken", description: expect.stringContaining("cannot be read") },
    ]);
    expect(await unread()).toMatchObject({ count: 1, oldest: { id: "broken" } });
  });

  test("is changed by a registration alone, which mends it", async () => {
    const deleted = await rpc("DeleteFunction", { id: "broken" });
    expect([deleted.status, deleted.body.message]).toEqual([
      400,
      expect.stringContaining("register it again"),
    ]);
    const invoked = await rpc("Invoke", { functionId: "broken" });
    expect(invoked.status).toBe(404);
    expect((await register("broken")).status).toBe(200);
    expect(await runsOf("broken")).toHaveLength(1);
    expect((await nextJob()).function_id).toBe("broken");
    await until(async () => (await unread()).count === 0, { about: "the next look" });
  });
});
