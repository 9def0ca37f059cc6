import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { projectionBatchMax, projectionPartSlicesMax } from "../../src/domain/state/projections/limits.ts";
import { sql } from "../../src/kit/sql.ts";
import { plant } from "../support/plant.ts";
import { idsOf, projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

/** More events of another partition than one poll goes through. */
const many = projectionBatchMax * projectionPartSlicesMax + 1;

describe.each(engines)("polls of one partition on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(() => server.stop());

  const byId = { partitionKey: "$.data.id" };
  let planted = 0;

  /** Events of partition `other`, committed at once. */
  async function plantOthers(event: string, count: number): Promise<void> {
    const { store } = server.running.domain;
    const head = await store.one<{ position: number; last_at: number }>(
      sql`SELECT position, last_at FROM heads WHERE environment_id = ${server.env}`,
    );
    await plant(store, "events", count, {
      ...{ environment_id: `'${server.env}'`, position: `${head!.position} + n`, version: "1" },
      ...{ id: `'evt_others_${++planted}_' || n`, name: `'${event}'`, data: `'{"id":"other"}'` },
      ...{ source: "'api'", at: `${head!.last_at}` },
    });
    await store.write((session) =>
      session.run(sql`UPDATE heads SET position = position + ${sql.bigint(count)}
        WHERE environment_id = ${server.env}`),
    );
  }
  const pollMine = async (name: string) => idsOf(await caller.poll(name, { partition: "mine" }));
  const save = async (name: string, seq: number, partitionKey: string) =>
    expect((await caller.save(name, seq, { n: 1 }, { partitionKey })).status).toBe(200);

  test("give again what a rebuild of the partition asks for", async () => {
    const { name, event } = await caller.registered("again", byId);
    const mine = await caller.emit(event, { id: "mine" });
    expect(await pollMine(name)).toEqual([mine.id]);
    await save(name, mine.seq, "mine");
    await plantOthers(event, 50);
    expect(await pollMine(name)).toEqual([]);
    await caller.ok("RebuildProjection", { name, partition: "mine" });
    expect(await pollMine(name)).toEqual([mine.id]);
  });

  test("give again what failed, once the projection is resumed, and what stands behind it where it is passed over", async () => {
    const { name, event } = await caller.registered("failed", byId);
    const bad = await caller.emit(event, { id: "mine" });
    const next = await caller.emit(event, { id: "mine" });
    const fail = async () => {
      expect(await pollMine(name)).toEqual([bad.id, next.id]);
      const failed = { partitionKey: "mine", eventId: bad.id, eventSeq: `${bad.seq}`, message: "no" };
      await caller.ok("ReportProjectionError", { name, ...failed });
      expect(await pollMine(name)).toEqual([]);
    };
    await fail();
    await caller.ok("ResumeProjection", { name });
    await fail();
    await caller.ok("ResumeProjection", { name, skipEventId: bad.id });
    expect(await pollMine(name)).toEqual([next.id]);
  });

  test("give what belongs to the partition by a changed definition", async () => {
    const { name, event } = await caller.registered("changed", byId);
    const more = await caller.emit(`${event}.too`, { id: "mine", at: "theirs" });
    const other = await caller.emit(event, { id: "other", at: "mine" });
    expect(await pollMine(name)).toEqual([]);
    await caller.ok("RegisterProjection", { name, events: [event, `${event}.too`], ...byId });
    expect(await pollMine(name)).toEqual([more.id]);
    await caller.ok("RegisterProjection", { name, events: [event], ...byId });
    expect(await pollMine(name)).toEqual([]);
    await caller.ok("RegisterProjection", { name, events: [event], partitionKey: "$.data.at" });
    expect(await pollMine(name)).toEqual([other.id]);
  });

  test("are of the data's own field `event` where the key names one", async () => {
    const { name, event } = await caller.registered("inner", { partitionKey: "event.id" });
    const mine = await caller.emit(event, { event: { id: "mine" } });
    await caller.emit(event, { event: { id: "other" } });
    expect(await pollMine(name)).toEqual([mine.id]);
  });

  test("begin again where a rebuild puts the cursor, before anything that was looked through", async () => {
    const { name, event } = await caller.registered("earlier", byId);
    const more = await caller.emit(`${event}.too`, { id: "mine" });
    const other = await caller.emit(event, { id: "other" });
    expect(idsOf(await caller.poll(name))).toEqual([other.id]);
    await save(name, other.seq, "other");
    await caller.ok("RegisterProjection", { name, events: [event, `${event}.too`], ...byId });
    await plantOthers(event, 50);
    expect(await pollMine(name)).toEqual([]);
    await caller.ok("RebuildProjection", { name, partition: "mine" });
    expect(await pollMine(name)).toEqual([more.id]);
  });

  // The last one: a poll of all partitions takes several looks to come past what is planted here.
  test("come to an event behind more of the others' than one goes through, also while those are saved", async () => {
    const { name, event } = await caller.registered("far", byId);
    const busy = await caller.emit(event, { id: "busy" });
    await plantOthers(event, many);
    const mine = await caller.emit(event, { id: "mine" });
    expect(await pollMine(name)).toEqual([]);
    // What its neighbours save says nothing of where its own events stand.
    expect(idsOf(await caller.poll(name, { partition: "busy" }))).toEqual([busy.id]);
    await save(name, busy.seq, "busy");
    expect(await pollMine(name)).toEqual([mine.id]);
    // Until it is saved, it is given again.
    expect(await pollMine(name)).toEqual([mine.id]);
    await save(name, mine.seq, "mine");
    expect(await pollMine(name)).toEqual([]);
    const next = await caller.emit(event, { id: "mine" });
    expect(await pollMine(name)).toEqual([next.id]);
  }, 120_000);
});
