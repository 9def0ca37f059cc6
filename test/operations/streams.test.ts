import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";

const service = "EntityStreamService";

describe.each(engines)("entity streams on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server?.stop());

  const call = (method: string, body: object, options = {}) => server.rpc(service, method, body, options);
  const append = (entityId: string, eventName: string, more: object = {}) =>
    call("AppendEvent", { entityId, entityType: "order", eventName, expectedVersion: -1, ...more });

  test("an append gets the next version, and the position that any event gets", async () => {
    const first = await append("a.1", "order.placed", { data: { total: 3 }, expectedVersion: 0 });
    expect(first.status).toBe(200);
    expect(first.body.entityVersion).toBe("1");
    expect(first.body.eventId).toMatch(/^evt_/);
    const second = await append("a.1", "order.paid", { dataValue: [1], expectedVersion: "1" });
    expect(second.body.entityVersion).toBe("2");
    expect(Number(second.body.sequence)).toBe(Number(first.body.sequence) + 1);
    const { body } = await call("ReadStream", { entityId: "a.1" });
    expect(body.totalCount).toBe(2);
    expect(body.events).toMatchObject([
      { name: "order.placed", data: { total: 3 }, entityVersion: "1", version: 1, source: "api" },
      { name: "order.paid", dataValue: [1], entityVersion: "2", natsSeq: second.body.sequence },
    ]);
    const event = await server.api(`/api/v1/events/${first.body.eventId}`);
    expect(event.body).toMatchObject({ entity_id: "a.1", entity_type: "order", entity_version: 1 });
    const info = await call("GetStreamInfo", { entityId: "a.1" });
    expect(info.body).toMatchObject({ entityId: "a.1", entityType: "order", version: "2", eventCount: "2" });
  });

  test("one who expects another version is told both, and leaves no gap", async () => {
    await append("b", "order.placed", { expectedVersion: 0 });
    const zero = await append("b", "order.placed", { expectedVersion: 0 });
    expect(zero.status).toBe(409);
    expect(zero.body).toMatchObject({ code: "aborted", message: "version conflict: expected 0, got 1" });
    expect((await append("b", "order.placed", { expectedVersion: 7 })).body.message).toBe(
      "version conflict: expected 7, got 1",
    );
    const next = await append("b", "order.paid", { expectedVersion: 1 });
    expect(next.body.entityVersion).toBe("2");
    expect(
      (await call("AppendEvent", { entityId: "b", entityType: "cart", eventName: "x" })).body,
    ).toMatchObject({
      code: "invalid_argument",
      message: 'entityType: stream b is of type "order"',
    });
  });

  test("of many at once who expect one version, one wins; -1 always does", async () => {
    const racers = await Promise.all(
      Array.from({ length: 20 }, (_, at) => append("race", `order.r${at}`, { expectedVersion: 0 })),
    );
    expect(racers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(racers.filter(({ status }) => status === 409)).toHaveLength(19);
    const all = await Promise.all(Array.from({ length: 50 }, () => append("race", "order.more")));
    expect(all.map(({ body }) => Number(body.entityVersion)).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 50 }, (_, at) => at + 2),
    );
  });

  test("a repeated key answers the first append, before any expectation", async () => {
    const key = { idempotencyKey: "k1" };
    const first = await append("keyed", "order.placed", { expectedVersion: 0, ...key });
    await append("keyed", "order.paid");
    const again = await append("keyed", "order.placed", { expectedVersion: 0, ...key });
    expect(again).toMatchObject({ status: 200, body: first.body });
    const other = await append("keyed.2", "order.placed", { expectedVersion: 0, ...key });
    expect(other.body.code).toBe("already_exists");
    expect((await server.rpc("SvcService", "Emit", { event: "x", idempotencyKey: "k1" })).body.code).toBe(
      "already_exists",
    );
    const [one, two] = await Promise.all([
      append("twins", "order.placed", { idempotencyKey: "k2", expectedVersion: 0 }),
      append("twins", "order.placed", { idempotencyKey: "k2", expectedVersion: 0 }),
    ]);
    expect(one.body).toEqual(two.body);
  });

  test("a batch is written whole, or not at all", async () => {
    const batch = (expected: number) =>
      call("AppendEvents", {
        streams: [
          {
            entity_id: "batch.a",
            entity_type: "order",
            expected_version: expected,
            events: [{ event_name: "order.placed", data: { n: 1 } }, { event_name: "order.paid" }],
          },
          {
            entityId: "batch.b",
            entityType: "stock",
            expectedVersion: -1,
            events: [{ eventName: "stock.taken" }],
          },
        ],
      });
    const done = await batch(0);
    expect(done.status).toBe(200);
    expect(done.body.results.map((r: { entityVersion: string }) => r.entityVersion)).toEqual(["1", "2", "1"]);
    const lost = await batch(0);
    expect(lost).toMatchObject({
      status: 409,
      body: { message: "streams[0].events[0]: stream batch.a: version conflict: expected 0, got 2" },
    });
    expect((await call("GetStreamInfo", { entityId: "batch.b" })).body.version).toBe("1");
    const twice = { entityId: "x", entityType: "t", events: [{ eventName: "e" }] };
    expect((await call("AppendEvents", { streams: [twice, twice] })).body.message).toBe(
      "streams[1].entityId: names a stream for the second time",
    );
  });

  test("an append starts functions, and reaches subscribers by name, by entity and as a frame", async () => {
    await server.rpc("SvcService", "RegisterFunction", {
      id: "ship",
      triggers: [{ event: "order.shipped" }],
    });
    const socket = await openSocket(server.url, { key: server.adminKey });
    await socket.subscribe("events:order.shipped");
    await socket.subscribe("entity:order.sub.1.>");
    await socket.subscribe("system.stream.>");
    const { body } = await append("sub.1", "order.shipped", { data: { to: "Bern" } });
    const frames = await socket.wait("event", 3);
    expect(frames.map((frame) => frame.topic).sort()).toEqual([
      "entity:order.sub.1.order.shipped",
      "events:order.shipped",
      "system.stream.sub.1.appended",
    ]);
    const entity = frames.find((frame) => frame.topic?.startsWith("entity:"));
    expect(entity?.data).toMatchObject({ id: body.eventId, entityVersion: 1, data: { to: "Bern" } });
    const system = frames.find((frame) => frame.topic?.startsWith("system."));
    expect(system?.data).toEqual({
      ...{ entity_id: "sub.1", entity_type: "order", entity_version: 1, event_id: body.eventId },
      ...{ event_name: "order.shipped", timestamp: expect.any(String) },
    });
    socket.close();
    const history = await call("GetEntityHistory", { entityId: "sub.1" });
    expect(history.body.entries).toMatchObject([
      { eventName: "order.shipped", entityVersion: "1", runs: [{ functionId: "ship" }] },
    ]);
    expect(history.body.info).toMatchObject({ entityId: "sub.1", currentVersion: "1" });
  });

  test("reads go in both directions and by pages; of nothing there is nothing", async () => {
    for (let at = 1; at <= 5; at++) await append("pages", `order.e${at}`);
    const versions = async (more: object) => {
      const { body } = await call("ReadStream", { entityId: "pages", ...more });
      const list = (body.events ?? []).map((event: { entityVersion: string }) => Number(event.entityVersion));
      return [list, body.nextVersion ?? "0"];
    };
    expect(await versions({})).toEqual([[1, 2, 3, 4, 5], "0"]);
    expect(await versions({ fromVersion: 2, limit: 2 })).toEqual([[2, 3], "4"]);
    expect(await versions({ direction: "backward", limit: 2 })).toEqual([[5, 4], "3"]);
    expect(await versions({ direction: "backward", from_version: "3" })).toEqual([[3, 2, 1], "0"]);
    expect(await versions({ fromVersion: 9 })).toEqual([[], "0"]);
    expect(await call("ReadStream", { entityId: "never" })).toMatchObject({ status: 200, body: {} });
    expect((await call("GetStreamInfo", { entityId: "never" })).body).toEqual({
      code: "not_found",
      message: "stream not found",
    });
    const { body } = await call("ListStreams", { entityType: "order", search: "PAGE" });
    expect(body).toMatchObject({ streams: [{ entityId: "pages", version: "5" }], totalCount: 1 });
  });

  test("a snapshot stands at a version of its stream; ten are kept", async () => {
    for (let at = 1; at <= 12; at++) await append("snap", "order.e");
    const create = (entityVersion: number, more: object = {}) =>
      call("CreateSnapshot", {
        entityId: "snap",
        entityType: "order",
        entityVersion,
        state: { v: entityVersion },
        ...more,
      });
    expect((await create(13)).body.message).toBe("entityVersion: must be at most the stream's version, 12");
    expect((await create(3, { entityType: "cart" })).body.code).toBe("invalid_argument");
    expect((await create(0)).body.code).toBe("invalid_argument");
    for (let at = 1; at <= 12; at++) expect((await create(at)).status).toBe(200);
    const at = async (beforeVersion: number) =>
      (await call("GetSnapshot", { entityId: "snap", beforeVersion })).body;
    expect(await at(0)).toMatchObject({ entityVersion: "12", entityType: "order", state: { v: 12 } });
    expect(await at(5)).toMatchObject({ entityVersion: "5" });
    expect(await at(2)).toMatchObject({ code: "not_found" });
  });

  test("a deleted stream is gone for good; what it held can be overwritten", async () => {
    const { body: first } = await append("gone", "order.placed", { data: { secret: "s3cr3t" } });
    await append("gone", "order.paid", { data: { secret: "s3cr3t" } });
    const redacted = await call("RedactEvent", { entityId: "gone", eventId: first.eventId });
    expect(redacted.body).toEqual({ entityVersion: "1", redactedAt: expect.any(String) });
    const { body: read } = await call("ReadStream", { entityId: "gone" });
    expect(read.events[0]).toMatchObject({ redactedAt: redacted.body.redactedAt });
    expect(read.events[0].data).toBeUndefined();
    const { body: logged } = await server.api(`/api/v1/events/${first.eventId}`);
    expect(logged).toMatchObject({ data: null, redacted_at: redacted.body.redactedAt });
    const { body: listed } = await server.api("/api/v1/events?search=order.placed&limit=200");
    expect(listed.events.filter((event: object) => "redacted_at" in event)).toHaveLength(1);
    expect((await call("DeleteStream", { entityId: "gone", purge: true })).body).toMatchObject({
      version: "2",
    });
    for (const method of ["GetStreamInfo", "ReadStream", "GetEntityHistory", "GetSnapshot"])
      expect((await call(method, { entityId: "gone" })).body.message).toBe("stream not found");
    expect((await append("gone", "order.placed")).body).toMatchObject({ code: "failed_precondition" });
    await server.running.tick("streams.purge");
    const events = await server.api("/api/v1/events?search=order&limit=200");
    expect(JSON.stringify(events.body)).not.toContain("s3cr3t");
  });

  test.each([
    ["", "must not be empty"],
    ["a..b", "must not contain an empty segment between dots"],
    [".a", "must not contain an empty segment between dots"],
    ["a b", "may have letters, digits and - . _ : ~"],
    ["a/b", "may have letters, digits and - . _ : ~"],
    ["svc:fn:x", "must not begin with svc:, which is the platform's"],
    ["x".repeat(257), "at most 256 bytes"],
  ])("the id %p is refused", async (entityId, rule) => {
    const refused = await append(entityId, "order.placed");
    expect(refused.body).toMatchObject({ code: "invalid_argument", message: `entityId: ${rule}` });
    expect((await call("GetStreamInfo", { entityId })).body.message).toBe("stream not found");
  });

  test("another environment's stream is like a missing one", async () => {
    await append("mine", "order.placed");
    const { body } = await server.api("/api/v1/environments", { body: { name: "other" } });
    const key = (await server.api("/api/v1/apikeys", { body: { name: "o", env_id: body.id } })).body.key;
    expect((await call("GetStreamInfo", { entityId: "mine" }, { key })).body.message).toBe(
      "stream not found",
    );
    expect((await call("ReadStream", { entityId: "mine" }, { key })).body).toEqual({});
    const theirs = await call(
      "AppendEvent",
      { entityId: "mine", entityType: "cart", eventName: "cart.made" },
      { key },
    );
    expect(theirs.body.entityVersion).toBe("1");
  });
});
