import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient, defineEvents, type EntityEvent, SvcError } from "../../src/sdk/index.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

type Events = { "cart.filled": { item: string; count: number }; "cart.sent": { to: string } };

describe.each(engines)("client.streams on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const client = () => createClient<Events>({ url: server.url, apiKey: server.adminKey });
  const cart = (entityId: string) => ({ entityId, entityType: "cart" });
  const filled = (count: number) => ({ event: "cart.filled" as const, data: { item: "a", count } });
  const failure = (work: Promise<unknown>): Promise<SvcError> =>
    work.then(
      () => Promise.reject(new Error("did not fail")),
      (error: SvcError) => error,
    );
  const all = async <Value>(values: AsyncIterable<Value>): Promise<Value[]> => {
    const list: Value[] = [];
    for await (const value of values) list.push(value);
    return list;
  };

  test("append at any version, or where they are told to", async () => {
    const { streams } = client();
    const first = await streams.append({ ...cart("one"), ...filled(1), metadata: { by: "ada" } });
    expect(first).toEqual({
      eventId: expect.any(String),
      version: 1,
      sequence: expect.any(Number),
    });
    expect((await streams.append({ ...cart("one"), ...filled(2) })).version).toBe(2);
    expect((await streams.append({ ...cart("one"), ...filled(3), expectedVersion: 2 })).version).toBe(3);
    const lost = await failure(streams.append({ ...cart("one"), ...filled(4), expectedVersion: 0 }));
    expect(lost).toBeInstanceOf(SvcError);
    expect([lost.code, lost.message]).toEqual(["aborted", "version conflict: expected 0, got 3"]);
    const keyed = { ...cart("one"), ...filled(4), idempotencyKey: "fourth", expectedVersion: 3 };
    expect(await streams.append(keyed)).toEqual(await streams.append(keyed));
    const [event] = await all(streams.read("one", { limit: 1 }));
    expect(event).toEqual({
      ...{ id: (await all(streams.read("one")))[0]!.id, name: "cart.filled", source: "api" },
      ...{ data: { item: "a", count: 1 }, metadata: { by: "ada" }, version: 1, schemaVersion: 1 },
      ...{ timestamp: expect.any(String), sequence: first.sequence },
    });
    // @ts-expect-error the data is that of the event
    const wrong = () => streams.append({ ...cart("one"), event: "cart.sent", data: { item: "a" } });
    expect(wrong).toBeFunction();
  });

  test("append to several streams, all or nothing", async () => {
    const { streams } = client();
    const batch = (expectedVersion: number) =>
      streams.appendMany([
        {
          ...cart("many.1"),
          expectedVersion,
          events: [filled(1), { event: "cart.sent", data: { to: "b" } }],
        },
        { ...cart("many.2"), events: [filled(5)] },
      ]);
    expect((await batch(0)).map(({ version }) => version)).toEqual([1, 2, 1]);
    expect((await failure(batch(0))).code).toBe("aborted");
    expect((await streams.info("many.2"))?.version).toBe(1);
    expect(await streams.info("never")).toBeUndefined();
    const { streams: found, totalCount } = await streams.list({ search: "many." });
    expect([found.map(({ entityId }) => entityId), totalCount]).toEqual([["many.1", "many.2"], 2]);
  });

  test("what is appended is checked first", async () => {
    const validate = (value: unknown) =>
      (value as { count: number }).count > 0
        ? { value: value as Events["cart.filled"] }
        : { issues: [{ message: "count must be positive" }] };
    const schema = { "~standard": { version: 1 as const, vendor: "test", validate } };
    const events = defineEvents<Events>({ "cart.filled": { schema, version: 3 } });
    const { streams } = createClient({ url: server.url, apiKey: server.adminKey, events });
    await failure(streams.append({ ...cart("checked"), ...filled(0) }));
    await failure(streams.appendMany([{ ...cart("checked"), events: [filled(1), filled(-1)] }]));
    expect(await streams.info("checked")).toBeUndefined();
    await streams.append({ ...cart("checked"), ...filled(1) });
    expect((await all(streams.read("checked")))[0]!.schemaVersion).toBe(3);
  });

  test("read page by page in both directions, however large the events are", async () => {
    const { streams } = client();
    for (let at = 0; at < 23; at++)
      await streams.appendMany([
        { ...cart("long"), events: Array.from({ length: 100 }, (_, n) => filled(at * 100 + n)) },
      ]);
    const counts = (events: EntityEvent<Events>[]) =>
      events.map((event) => (event.name === "cart.filled" ? event.data.count : -1));
    const upTo = (length: number) => Array.from({ length }, (_, at) => at);
    expect(counts(await all(streams.read("long")))).toEqual(upTo(2_300));
    expect(counts(await all(streams.read("long", { direction: "backward" })))).toEqual(upTo(2_300).reverse());
    expect(counts(await all(streams.read("long", { fromVersion: 1_501, limit: 600 })))).toEqual(
      upTo(2_100).slice(1_500),
    );
    expect(await all(streams.read("never"))).toEqual([]);
    for await (const { version } of streams.read("long")) if (version === 3) break;

    const large = "x".repeat(900_000);
    for (let at = 0; at < 24; at++)
      await streams.append({ ...cart("large"), event: "cart.filled", data: { item: large, count: at } });
    expect(counts(await all(streams.read("large")))).toEqual(upTo(24));
  }, 120_000);

  test("fold from the latest snapshot, and leave one", async () => {
    const { streams } = client();
    for (let at = 1; at <= 5; at++) await streams.append({ ...cart("folded"), ...filled(at) });
    const seen: number[] = [];
    const sum = (state: { total: number }, event: EntityEvent<Events>) => {
      seen.push(event.version);
      return event.name === "cart.filled" ? { total: state.total + event.data.count } : state;
    };
    const initial = { total: 0 };
    const folded = await streams.fold("folded", sum, { initial, snapshotEvery: 5 });
    expect(folded).toEqual({ state: { total: 15 }, version: 5 });
    expect(await streams.snapshot("folded")).toMatchObject({ version: 5, state: { total: 15 } });
    await streams.append({ ...cart("folded"), ...filled(6), expectedVersion: folded.version });
    seen.length = 0;
    expect(await streams.fold("folded", sum, { initial, snapshotEvery: 5 })).toEqual({
      state: { total: 21 },
      version: 6,
    });
    expect(seen).toEqual([6]);
    expect((await streams.snapshot("folded"))?.version).toBe(5);
    expect((await streams.fold("folded", sum, { initial, fromSnapshot: false })).state.total).toBe(21);
    expect(await streams.fold("never", sum, { initial })).toEqual({ state: initial, version: 0 });
    await streams.createSnapshot({ ...cart("folded"), version: 2, state: [3] });
    expect(await streams.snapshot("folded", { beforeVersion: 4 })).toMatchObject({ version: 2, state: [3] });
    expect(await streams.snapshot("folded", { beforeVersion: 1 })).toBeUndefined();
  });

  test("history, redaction and deletion; appends of a run name it", async () => {
    const { streams } = client();
    await server.rpc("SvcService", "RegisterFunction", { id: "sent", triggers: [{ event: "cart.sent" }] });
    const worker = pullWorker(server, "w-sent");
    await worker.register("sent");
    const sent = { event: "cart.sent" as const, data: { to: "Bern" } };
    const { eventId } = await streams.append({ ...cart("told"), ...sent });
    const [job] = await worker.poll();
    const by = { runId: job!.run_id };
    await streams.append({ ...cart("told"), ...filled(1) }, by);
    await all(streams.read("told.other", by));
    expect((await all(streams.read("told"))).map(({ runId }) => runId)).toEqual([undefined, job!.run_id]);
    const linked = await server.api(`/api/v1/runs/${job!.run_id}/streams`);
    expect(linked.body.entity_ids).toEqual(["told"]);
    const { entries, nextVersion } = await streams.history("told", { limit: 1 });
    expect(nextVersion).toBe(2);
    expect(entries).toMatchObject([
      { eventId, data: { to: "Bern" }, runs: [{ runId: job!.run_id, functionId: "sent", steps: [] }] },
    ]);
    await streams.redact("told", eventId);
    const [redacted] = await all(streams.read("told"));
    expect(redacted).toMatchObject({ data: null, redactedAt: expect.any(String) });
    await streams.delete("told", { purge: true });
    expect(await streams.info("told")).toBeUndefined();
    expect((await failure(streams.append({ ...cart("told"), ...filled(1) }))).code).toBe(
      "failed_precondition",
    );
    expect((await failure(all(streams.read("told")))).message).toBe("stream not found");
  });
});
