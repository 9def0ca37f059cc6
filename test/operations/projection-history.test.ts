import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const day = 86_400_000;

describe.each(engines)("recording projections on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(() => server?.stop());

  const register = (name: string, more: object = {}) =>
    caller.ok("RegisterProjection", { name, events: [`${name}.*`], recording: true, ...more });
  const time = (ago: number) => new Date(Date.now() - ago).toISOString();
  /** Folds one event, as of a time that the runner says. */
  const fold = async (name: string, state: unknown, ago: number) => {
    const { seq, id } = await caller.emit(`${name}.moved`);
    await caller.poll(name);
    const saved = await caller.save(name, seq, state, { lastEventId: id, lastEventTime: time(ago) });
    expect(saved.status).toBe(200);
    return { seq, id };
  };
  const past = (name: string, ago: number) => caller.call("GetProjection", { name, asOf: time(ago) });

  test("show a state as it was, over RPC and REST", async () => {
    await register("kept");
    const first = await fold("kept", { n: 1 }, 3 * day);
    await fold("kept", { n: 2 }, 2 * day);
    await fold("kept", { n: 3 }, day);
    expect((await caller.ok("GetProjection", { name: "kept" })).state).toEqual({ n: 3 });
    expect((await past("kept", 2.5 * day)).body).toMatchObject({
      ...{ state: { n: 1 }, lastEventId: first.id, stateLastEventSeq: `${first.seq}` },
    });
    expect((await past("kept", 1.5 * day)).body.state).toEqual({ n: 2 });
    expect((await past("kept", 0)).body.state).toEqual({ n: 3 });
    const none = await past("kept", 4 * day);
    expect([none.status, none.body.state]).toEqual([200, undefined]);
    const rest = (asOf: string) => server.api(`/api/v1/projections/kept?as_of=${encodeURIComponent(asOf)}`);
    expect((await rest(time(2.5 * day))).body.state.state).toEqual({ n: 1 });
    expect(await rest("yesterday")).toMatchObject({ status: 400, body: { field: "as_of" } });
  });

  test("others, and times of which nothing is kept, are refused and say why", async () => {
    await caller.ok("RegisterProjection", { name: "plain", events: ["plain.*"] });
    await fold("plain", { n: 1 }, 0);
    const plain = await past("plain", 0);
    expect([plain.status, plain.body.code]).toEqual([400, "failed_precondition"]);
    expect(plain.body.message).toContain("is not recording");
    // From now on.
    await register("plain");
    const before = await past("plain", day);
    expect(before.body.message).toContain("is recording since");
    await fold("plain", { n: 2 }, 0);
    expect((await past("plain", 0)).body.state).toEqual({ n: 2 });
    await caller.ok("RegisterProjection", { name: "plain", events: ["plain.*"] });
    expect((await past("plain", 0)).body.code).toBe("failed_precondition");
    expect((await past("kept", 31 * day)).body.message).toContain("30 days");
    const external = { name: "effects", events: ["a"], mode: "external", recording: true };
    expect(await caller.call("RegisterProjection", external)).toMatchObject({
      ...{ status: 400, body: { code: "invalid_argument", message: expect.stringContaining("recording") } },
    });
  });

  test("are recorded again by a rebuild, and forgotten with their projection or their age", async () => {
    await register("aging");
    const rows = () =>
      server.running.domain.store.all<{ generation: number; state: string }>(
        sql`SELECT generation, state FROM projection_history WHERE name = 'aging' ORDER BY at, position`,
      );
    for (const [n, ago] of [50 * day, 40 * day, 35 * day, day].entries()) await fold("aging", { n }, ago);
    await server.running.tick("projections.sweep");
    // The newest that is older than 30 days is what holds until the next.
    expect((await rows()).map(({ state }) => JSON.parse(state).n)).toEqual([2, 3]);
    expect((await past("aging", 29 * day)).body.state).toEqual({ n: 2 });
    await caller.ok("RebuildProjection", { name: "aging" });
    const { events } = await caller.poll("aging");
    const last = events.at(-1);
    await caller.save("aging", Number(last.seq), { n: "again" }, { lastEventTime: time(0) });
    expect((await past("aging", 0)).body.state).toEqual({ n: "again" });
    await server.running.tick("projections.sweep");
    expect((await rows()).map(({ state }) => JSON.parse(state).n)).toEqual(["again"]);
    await caller.ok("UnregisterProjection", { name: "aging" });
    await server.running.tick("projections.sweep");
    expect(await rows()).toEqual([]);
  });

  test("of a projection that is folded by SQL its statements are kept", async () => {
    const name = `sqled_${engine}`;
    const made = (description: string) =>
      caller.ok("CreateSQLProjection", {
        ...{ name, description, tableSql: `CREATE TABLE proj_${name} (id TEXT PRIMARY KEY)` },
        eventHandlers: { "sqled.told": `INSERT INTO proj_${name} (id) VALUES (:event_id)` },
      });
    await made("one");
    await made("one");
    await made("two");
    const { entries } = await caller.ok("ListProjectionHistory", { name });
    expect(entries).toHaveLength(2);
    expect(entries[1].projectionSnapshot).toMatchObject({
      ...{ mode: "sql", description: "one", sqlDefinition: expect.stringContaining("CREATE TABLE") },
      eventHandlers: { "sqled.told": expect.stringContaining("INSERT") },
    });
  });
});
