import { afterEach, beforeEach, expect, test } from "bun:test";
import { createClient } from "../../src/sdk/index.ts";
import { type FakeServer, startFakeServer } from "../support/fake-server.ts";

let server: FakeServer;
beforeEach(() => {
  server = startFakeServer();
});
afterEach(() => server.stop());

const client = () => createClient({ url: server.url, apiKey: "ifkey_test" });

test("an emit answers event, runs and position as plain values", async () => {
  await client().registerFunction({ id: "ship", triggers: [{ event: "order.placed" }] });
  const emitted = await client().emit("order.placed", { id: 7 });
  expect(emitted).toEqual({ eventId: "evt_1", runIds: ["run_2"], sequence: 2 });
});

test("data that is no object travels in its own field", async () => {
  await client().emit("n", 5);
  await client().emit("o", { a: 1 });
  expect(server.requests.map((request) => request.body)).toEqual([
    { event: "n", dataValue: 5, tellUnserved: true },
    { event: "o", data: { a: 1 }, tellUnserved: true },
  ]);
});

test("two hundred and fifty events travel in three batches and come back in order", async () => {
  const events = Array.from({ length: 250 }, (_, n) => ({ event: "n", data: { n } }));
  const emitted = await client().emitMany(events);
  expect(emitted.map((one) => one.sequence)).toEqual(events.map((_, at) => at + 1));
  expect(server.requests.map((request) => (request.body as { events: unknown[] }).events.length)).toEqual([
    100, 100, 50,
  ]);
});

test("a read is tried three times, then its error is thrown as the server put it", async () => {
  server.fail("GetRun", { status: 500, body: { code: "internal", message: "broken 42" } }, 9);
  const failed = client().getRun("run_1");
  await expect(failed).rejects.toMatchObject({
    code: "internal",
    message: "broken 42",
    status: 500,
    retryable: true,
  });
  expect(server.requests).toHaveLength(3);
});

test("an emit without a key is not repeated when the first may have worked, with one it is", async () => {
  server.fail("Emit", { status: 500, handled: true }, 2);
  await expect(client().emit("a", {})).rejects.toMatchObject({ status: 500 });
  expect(server.requests).toHaveLength(1);
  await client().emit("a", {}, { idempotencyKey: "k" });
  expect(server.requests).toHaveLength(3);
});

test("an emit that was refused unread is repeated after the time the server asks for", async () => {
  server.fail("Emit", { status: 429, headers: { "Retry-After": "0.3" } });
  const startedAt = performance.now();
  await client().emit("a", {});
  expect(performance.now() - startedAt).toBeGreaterThan(290);
  expect(server.requests).toHaveLength(2);
});

test("a server that asks for more patience than ten seconds is not waited for", async () => {
  server.fail("Emit", { status: 429, headers: { "Retry-After": "60" } });
  await expect(client().emit("a", {})).rejects.toMatchObject({ status: 429, retryAfterMs: 60_000 });
});

test("a refused connection reads as unreachable and certainly unsent", async () => {
  await server.stop();
  await expect(client().emit("a", {})).rejects.toMatchObject({
    code: "unreachable",
    status: 0,
    unsent: true,
  });
});

test("the field at fault is named, in either protocol's form", async () => {
  server.fail("Emit", {
    status: 400,
    body: { code: "invalid_argument", message: "events[3].event: too long" },
  });
  await expect(client().emit("a", {})).rejects.toMatchObject({ field: "events[3].event", retryable: false });
  server.fail("/events/names", {
    status: 400,
    body: { error: "bad", code: "invalid_argument", field: "since" },
  });
  await expect(client().events.names()).rejects.toMatchObject({ field: "since", message: "bad" });
});

test("an environment's name is resolved to its id once; an unknown one is an error", async () => {
  const staging = createClient({ url: server.url, environment: "staging" });
  await staging.emit("a", {});
  await staging.emit("a", {});
  expect(server.requests.filter((request) => request.path === "/api/v1/environments")).toHaveLength(1);
  const nowhere = createClient({ url: server.url, environment: "nowhere" });
  await expect(nowhere.emit("a", {})).rejects.toMatchObject({ code: "not_found", field: "environment" });
});

test("waiting for a run ends at its time with a word for it", async () => {
  await client().registerFunction({ id: "ship", triggers: [{ event: "a" }] });
  const { runIds } = await client().emit("a", {});
  const waiting = client().waitForRun(runIds[0]!, { timeoutMs: 60 });
  await expect(waiting).rejects.toMatchObject({ code: "deadline_exceeded" });
});

test("a consistent client sends the last sequence that was answered, and forgets one that is of a log of before", async () => {
  const answers = (sequence: string) =>
    server.fail("Emit", { status: 200, body: { eventId: "e" }, headers: { "X-Svc-Sequence": sequence } });
  const one = client();
  const emitted = async (sequence: string) => {
    answers(sequence);
    await one.emit("a", {});
    return one.sequence();
  };
  const read = (from: typeof one) => {
    server.fail("GetRun", { status: 200, body: { id: "run_1", status: "RUN_STATUS_RUNNING" } });
    return from.getRun("run_1");
  };
  const sent = () => server.requests.at(-1)!.headers.get("x-svc-min-sequence");
  await read(one.consistent());
  expect(sent()).toBeNull();
  expect(await emitted("7.10")).toBe("7.10");
  expect(await emitted("7.9")).toBe("7.10");
  expect(await emitted("7.11.topics")).toBe("7.10");
  expect(await emitted("8.2")).toBe("8.2");
  expect(await emitted("nonsense")).toBe("8.2");
  await read(one);
  expect(sent()).toBeNull();
  await read(one.consistent().consistent());
  expect(sent()).toBe("8.2");
  // The server answers before its caller gives up.
  expect(server.requests.at(-1)!.headers.get("connect-timeout-ms")).toBe("30000");
  const headers = { "Svc-Error-Reason": "epoch_changed" };
  server.fail("GetRun", { status: 400, body: { code: "failed_precondition" }, headers });
  await expect(one.consistent().getRun("run_1")).rejects.toMatchObject({ code: "failed_precondition" });
  expect(one.sequence()).toBeUndefined();
});

test("what is no address of a server is refused at once, without its password", () => {
  for (const url of ["localhost:9123", "ftp://x", "http://", "", "ws://user:secret@x"]) {
    expect(() => createClient({ url })).toThrow(/^url: must be http:\/\/ or https:\/\/ with a host/);
    expect(() => createClient({ url })).not.toThrow("secret");
  }
  expect(createClient({ url: "https://svc.test/base/" }).transport.url).toBe("https://svc.test/base");
});

test("what JSON cannot hold is an invalid argument that names its place, and nothing is sent", async () => {
  const loop: Record<string, unknown> = { lines: [] };
  (loop.lines as unknown[]).push({ order: loop });
  const cases: [() => Promise<unknown>, string][] = [
    [() => client().emit("n", { items: [{ total: 1n }] }), "data.items[0].total"],
    [() => client().emit("n", [1n]), "data[0]"],
    [() => client().emit("n", loop), "data.lines[0].order"],
    [() => client().emitMany([{ event: "n", data: { a: 1n } }]), "events[0].data.a"],
    [() => client().kv.put("b", "k", { a: 1n }), "value.a"],
  ];
  for (const [call, field] of cases) {
    const error = await call().catch((thrown: Error) => thrown);
    expect(error).toMatchObject({ code: "invalid_argument", field, retryable: false });
    expect((error as Error).message).toStartWith(`${field}: `);
  }
  expect(server.requests).toEqual([]);
});

test("what is too large is 413 in either protocol, and not sent again", async () => {
  const body = { code: "resource_exhausted", message: "request body is larger than 4 bytes" };
  server.fail("Emit", { status: 429, body });
  const tooLarge = { status: 413, code: "payload_too_large", retryable: false };
  expect(
    await client()
      .emit("n", 1, { idempotencyKey: "k" })
      .catch((error) => error),
  ).toMatchObject(tooLarge);
  expect(server.requests).toHaveLength(1);
});
