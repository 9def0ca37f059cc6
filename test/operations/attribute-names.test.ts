import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import {
  type AttributeValue,
  createClient,
  createFunction,
  createWorker,
  type Worker,
} from "../../src/sdk/index.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const named = "/api/v1/attributes";

describe.each(engines)("names of attributes on %s", (engine) => {
  let server: TestServer;
  let worker: Worker;
  /** Runs wait here between the two halves of what they set. */
  const halfway = new Map<string, () => void>();

  const setter = createFunction<{ "names.set": { first: Attributes; then?: Attributes } }>(
    { id: "names-set", event: "names.set", retry: { maxAttempts: 1 } },
    async ({ event, run, step }) => {
      const { first, then } = event.data;
      run.set(first);
      await step.run("first", () => 1);
      if (!then) return;
      await step.run("wait", () => new Promise<number>((done) => halfway.set(run.id, () => done(1))));
      run.set(then);
    },
  );
  type Attributes = Record<string, AttributeValue>;

  const client = () => createClient({ url: server.url, apiKey: server.adminKey });
  const begin = async (first: Attributes, then?: Attributes) =>
    (await client().emit("names.set", { first, ...(then && { then }) })).runIds[0]!;
  const ended = (runId: string) => client().waitForRun(runId, { timeoutMs: 20_000 });
  const list = async (options: CallOptions = {}) => (await server.api(named, options)).body;
  const find = async (name: string) =>
    (await list()).attributes.find((one: { name: string }) => one.name === name);
  const remove = (name: string, options: CallOptions = {}) =>
    server.api(`${named}/${name}`, { ...options, method: "DELETE" });
  const declare = (id: string, attributes: object[], options: CallOptions = {}) =>
    server.rpc("SvcService", "RegisterFunction", { id, attributes }, options);
  const gone = (name: string) =>
    until(async () => ((await find(name)) === undefined ? true : undefined), {
      ...{ about: `the end of ${name}`, deadlineMs: 20_000 },
    });
  const keyOf = async (body: object) =>
    (await server.api("/api/v1/apikeys", { body: { name: "names", ...body } })).body.key as string;

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 200 } });
    worker = createWorker({
      ...{ url: server.url, apiKey: server.adminKey, functions: [setter] },
      log: { debug() {}, info() {}, warn() {}, error() {} },
    });
    await worker.start();
  }, 120_000);
  afterAll(async () => {
    await worker?.stop();
    await server?.stop();
  });

  test("a name that running runs use goes with its values, and comes again with another type", async () => {
    for (let n = 0; n < 3; n++)
      expect((await ended(await begin({ size: "big", kept: n }))).status).toBe("completed");
    const running = await begin({ size: "small", kept: 9 }, { size: 5, late: true });
    const other = await begin({ size: "small" }, { size: "late" });
    await until(async () => (halfway.size === 2 ? true : undefined), {
      about: "both halves",
      deadlineMs: 20_000,
    });
    // What is set travels with the next report.
    await until(async () => ((await find("size")).runs === 5 ? true : undefined), {
      ...{ about: "the reports", deadlineMs: 20_000 },
    });
    const { limits, attributes } = await list();
    expect(limits).toEqual({ names: 200, of_run: 32, text_bytes: 256 });
    expect(
      attributes.map(({ name, type, runs, runs_capped }: never) => [name, type, runs, runs_capped]),
    ).toEqual([
      ["kept", "number", 4, false],
      ["size", "text", 5, false],
    ]);
    expect(Date.parse(attributes[0].first_seen_at)).toBeGreaterThan(Date.now() - 60_000);

    const deleted = await remove("size");
    expect(deleted.status).toBe(200);
    expect(deleted.body).toMatchObject({ name: "size", type: "text", deleted_at: expect.any(String) });
    // Again the same answer: it is going.
    expect((await remove("size")).body).toEqual(deleted.body);
    expect((await declare("names-early", [{ name: "size" }])).body).toMatchObject({
      code: "failed_precondition",
      message: "attribute size is being deleted, declare it when it is gone",
    });
    // What is set meanwhile goes with the others, and fails no run.
    halfway.get(other)!();
    expect((await ended(other)).status).toBe("completed");
    await gone("size");
    expect((await client().getRun(other)).attributes ?? {}).toEqual({});
    expect((await client().listRuns({ attributes: { kept: { gte: 0 } } })).runs).toHaveLength(4);
    const left = await server.running.domain.store.all(
      sql`SELECT run_id FROM run_attributes WHERE name = 'size'`,
    );
    expect(left).toEqual([]);

    // This node has read that it is a text.
    halfway.get(running)!();
    expect((await ended(running)).status).toBe("completed");
    expect((await client().getRun(running)).attributes).toEqual({ size: 5, kept: 9, late: true });
    expect(await find("size")).toMatchObject({ type: "number", runs: 1 });
    expect((await client().listRuns({ attributes: { size: { gt: 4 } } })).runs).toHaveLength(1);
    expect((await ended(await begin({ size: "text again" }))).error?.code).toBe("ATTRIBUTE_REFUSED");
  }, 120_000);

  test("a name that a function declares stays until it declares it no more; runs of before bring nothing back", async () => {
    expect((await declare("names-declared", [{ name: "declared", path: "at" }])).status).toBe(200);
    const refused = await remove("declared");
    expect(refused.status).toBe(409);
    expect(refused.body).toMatchObject({
      code: "failed_precondition",
      message:
        "function names-declared takes attribute declared from its events: register it without that first",
    });
    expect((await declare("names-declared", [])).status).toBe(200);
    expect((await remove("declared")).status).toBe(200);
    // A rollback declares what the older definition had.
    const back = () =>
      server.rpc("SvcService", "RollbackFunction", {
        functionId: "names-declared",
        version: 1,
        changeReason: "back",
      });
    expect((await back()).body.message).toContain("attribute declared is being deleted");
    await gone("declared");
    expect((await back()).status).toBe(200);
    expect(await find("declared")).toMatchObject({ type: "text", runs: 0 });
  }, 120_000);

  test("what is not there, what is another environment's and who may not", async () => {
    expect((await declare("names-own", [{ name: "own" }])).status).toBe(200);
    const missing = await remove("nothing");
    expect([missing.status, missing.body.message]).toEqual([404, "attribute nothing not found"]);
    const { id } = (await server.api("/api/v1/environments", { body: { name: "names-elsewhere" } })).body;
    const key = await keyOf({ env_id: id });
    expect((await list({ key })).attributes).toEqual([]);
    const foreign = await remove("own", { key });
    expect([foreign.status, foreign.body.message]).toEqual([404, "attribute own not found"]);
    expect((await declare("names-there", [{ name: "own", type: "number" }], { key })).status).toBe(200);
    expect((await find("own")).type).toBe("text");
    const viewer = await keyOf({ role_ids: ["role_viewer"] });
    expect((await server.api(named, { key: viewer })).status).toBe(200);
    expect((await remove("own", { key: viewer })).status).toBe(403);
  }, 120_000);

  test("attributes.purge does not keep one environment waiting for the values of another", async () => {
    const { store } = server.running.domain;
    const many = 450;
    const { id } = (await server.api("/api/v1/environments", { body: { name: "names-greedy" } })).body;
    await store.write(async (session) => {
      await session.run(sql`INSERT INTO run_attribute_names (environment_id, name, type, created_at, deleted_at)
        VALUES (${id}, 'a', 'text', 1, 1), (${server.env}, 'b', 'text', 1, 1)`);
      for (let n = 0; n < many; n++)
        await session.run(sql`INSERT INTO run_attributes (environment_id, run_id, name, value, created_at)
          VALUES (${id}, ${`run_greedy_${n}`}, 'a', 'sx', 1)`);
    });
    await gone("b");
    await until(
      async () =>
        (await store.all(sql`SELECT name FROM run_attribute_names WHERE environment_id = ${id}`)).length === 0
          ? true
          : undefined,
      { about: "the end of the others", deadlineMs: 20_000 },
    );
    expect(await store.all(sql`SELECT run_id FROM run_attributes WHERE environment_id = ${id}`)).toEqual([]);
  }, 120_000);
});
