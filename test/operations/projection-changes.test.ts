import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("changes of projections on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const call = (method: string, body: object, options = {}) =>
    server.rpc("ProjectionService", method, body, options);
  const ok = async (method: string, body: object, options = {}) => {
    const answer = await call(method, body, options);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };

  test("every change is an entry, newest first, with who; the same again is none", async () => {
    const [name, event] = ["changed", "changed.happened"];
    const made = await server.api("/api/v1/environments", { body: { name: "apart" } });
    const apart = { body: { name: "apart", env_id: made.body.id } };
    const { key } = (await server.api("/api/v1/apikeys", apart)).body;
    const entriesOf = async (more: object = {}) => ok("ListProjectionHistory", { name, ...more });
    await ok("RegisterProjection", { name, events: [event] });
    await ok("RegisterProjection", { name, events: [event] });
    await ok("RegisterProjection", { name, events: [event, "more"], version: 2 });
    await ok("PauseProjection", { name });
    await ok("PauseProjection", { name });
    await ok("RegisterProjection", { name, events: [event, "more"], version: 2 });
    await ok("UnregisterProjection", { name });
    const { entries, hasMore } = await entriesOf();
    expect(hasMore).toBeUndefined();
    expect(
      entries.map((one: Record<string, unknown>) => [one.entityVersion, one.changeType, one.actorId]),
    ).toEqual([
      ["4", "delete", "ak_admin_bootstrap"],
      ["3", "status_change", "ak_admin_bootstrap"],
      ["2", "update", "ak_admin_bootstrap"],
      ["1", "update", "ak_admin_bootstrap"],
    ]);
    expect(entries[1]).toMatchObject({
      ...{ name, eventId: expect.stringMatching(/^evt_/), recordedAt: expect.any(String) },
      projectionSnapshot: { name, mode: "managed", status: "paused", events: [event, "more"], version: 2 },
    });
    const page = await entriesOf({ limit: 1, from_version: "3" });
    expect([page.entries[0].entityVersion, page.hasMore]).toEqual(["2", true]);
    const { entry } = await ok("GetProjectionRevision", { name, version: "1" });
    expect(entry.projectionSnapshot).toMatchObject({ events: [event], status: "running" });
    await ok("RegisterProjection", { name, events: [event] });
    expect((await entriesOf({ limit: 1 })).entries[0]).toMatchObject({
      entityVersion: "5",
      changeType: "update",
    });
    for (const [method, body] of [
      ["ListProjectionHistory", { name }],
      ["GetProjectionRevision", { name, version: 1 }],
    ] as const)
      expect((await call(method, body, { key })).status).toBe(404);
    expect((await call("GetProjectionRevision", { name, version: 9 })).status).toBe(404);
    expect((await call("ListProjectionHistory", { name: "none" })).status).toBe(404);
  });

  test("a definition that a rebuild brings is an entry too", async () => {
    const name = "rebuilt";
    const definition = { mode: "managed", events: ["rebuilt.a", "rebuilt.b"], version: 2 };
    await ok("RegisterProjection", { name, events: ["rebuilt.a"] });
    await ok("RebuildProjection", { name, strategy: "side_by_side", definition });
    // It brings none.
    await ok("RebuildProjection", { name });
    const { entries } = await ok("ListProjectionHistory", { name });
    expect(
      entries.map((one: Record<string, unknown>) => [one.entityVersion, one.changeType, one.actorId]),
    ).toEqual([
      ["2", "update", "ak_admin_bootstrap"],
      ["1", "update", "ak_admin_bootstrap"],
    ]);
    expect(entries[0].projectionSnapshot).toMatchObject({ events: definition.events, version: 2 });
  });
});
