import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type Client, createClient, createWorker } from "../../src/sdk/index.ts";
import { projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines)("consistent clients on %s", (engine) => {
  let server: TestServer;
  let caller: ReturnType<typeof projectionCaller>;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    caller = projectionCaller(server);
  }, 120_000);
  afterAll(() => server.stop());

  const connect = () => createClient({ url: server.url, apiKey: server.adminKey });
  const registered = (name: string) =>
    caller.ok("RegisterProjection", { name, events: [`${name}.happened`] });
  const stateOf = async (client: Client, name: string) => (await client.projections.get(name)).state;

  test("a client knows where its last write stands, and its consistent reads wait for it", async () => {
    await registered("kept");
    const client = connect();
    expect(client.sequence()).toBeUndefined();
    const { sequence } = await client.emit("kept.happened", {});
    expect(client.sequence()).toMatch(new RegExp(`^\\d+\\.${sequence}$`));
    const token = client.sequence();
    await client.publish("elsewhere", {});
    expect(client.sequence()).toBe(token);
    expect(await stateOf(client, "kept")).toBeUndefined();
    const reading = stateOf(client.consistent(), "kept");
    await caller.poll("kept");
    await caller.save("kept", Number(sequence), { n: 1 });
    expect(await reading).toEqual({ n: 1 });
    await client.streams.append({ entityId: "a", entityType: "thing", event: "x.y", data: {} });
    expect(client.sequence()).not.toBe(token);
    expect(client.consistent().sequence()).toBe(client.sequence());
  });

  test("another client reads what this one wrote", async () => {
    await registered("handed");
    const writer = connect();
    const { sequence } = await writer.emit("handed.happened", {});
    const reader = connect();
    expect(await stateOf(reader.consistent(), "handed")).toBeUndefined();
    const reading = stateOf(reader.consistent({ after: writer.sequence() }), "handed");
    await caller.poll("handed");
    await caller.save("handed", Number(sequence), { n: 2 });
    expect(await reading).toEqual({ n: 2 });
    expect(() => reader.consistent({ after: "soon" })).toThrow(TypeError);
  });

  test("a handler reads nothing older than its event", async () => {
    await registered("seen");
    const client = connect();
    const read = Promise.withResolvers<unknown>();
    const began = Promise.withResolvers<string | undefined>();
    const look = client.createFunction({ id: "look", event: "seen.happened" }, async ({ run, step }) => {
      began.resolve(run.sequence);
      return step.run("read", async () => read.resolve(await stateOf(client.consistent(), "seen")));
    });
    const worker = createWorker({ client, functions: [look], handleSignals: false, log: silent });
    await worker.start();
    const { seq } = await caller.emit("seen.happened");
    expect(await began.promise).toMatch(new RegExp(`^\\d+\\.${seq}$`));
    expect(client.sequence()).toBe(await began.promise);
    await caller.poll("seen");
    await caller.save("seen", seq, { n: 3 });
    expect(await read.promise).toEqual({ n: 3 });
    await worker.drain({ timeoutMs: 5_000 });
  });

  test("after a restore one read says so, and the next ones wait for nothing of before", async () => {
    const client = connect();
    await client.emit("a.happened", {});
    const { store } = server.running.domain;
    await store.write((session) => session.run(sql`UPDATE heads SET epoch = epoch + 1`));
    // A node remembers the epoch of a log until it meets another one: after a restore it starts anew.
    const [head] = await store.all<{ epoch: number; position: number }>(
      sql`SELECT epoch, position FROM heads WHERE environment_id = ${server.env}`,
    );
    const fresh = connect();
    await fresh.consistent({ after: `${head!.epoch}.${head!.position}` }).listRuns();
    await expect(client.consistent().listRuns()).rejects.toMatchObject({ code: "failed_precondition" });
    expect(client.sequence()).toBeUndefined();
    expect((await client.consistent().listRuns()).totalCount).toBeNumber();
    await client.emit("a.happened", {});
    expect(client.sequence()).toStartWith(`${head!.epoch}.`);
  });
});
