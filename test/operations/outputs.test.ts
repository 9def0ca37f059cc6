import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  outputBytesMax,
  outputReadersMax,
  outputStoredBytesMax,
} from "../../src/domain/engine/runs/outputs/limits.ts";
import { sql } from "../../src/kit/sql.ts";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type OutputChunk,
  testFunction,
  type Worker,
} from "../../src/sdk/index.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { lookerKey } from "../support/thing-doors.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const words = ["Once", " upon", " a", " time"];

/** Tokens of a step that breaks in the middle of its first try, between what the handler says around it. */
const tells = createFunction({ id: "tells", retry: { maxAttempts: 2, delay: 10 } }, async ({ step, run }) => {
  const out = run.output("tokens");
  void out.write({ attempt: run.attempt });
  await step.sleep("rest", 1);
  const done = await step.run("story", async () => {
    for (const word of words) {
      await out.write(word);
      if (run.attempt === 1 && word === " a") throw new Error("the model broke");
    }
    return words.join("");
  });
  await step.sleep("rest again", 1);
  void out.write("end");
  return done;
});
let goOn: () => void = () => {};
let gate = Promise.resolve();
const live = createFunction({ id: "live" }, async ({ step, run }) => {
  await step.run("story", async () => {
    await run.output("tokens").write("first");
    await gate;
    for (const word of words) void run.output("tokens").write(word);
    await run.output("other").write({ n: 1 });
  });
});
const again = createFunction({ id: "again", retry: { maxAttempts: 2, delay: 10 } }, async ({ step, run }) =>
  step.run("flood", async () => {
    await run.output("tokens").write(run.attempt);
    await gate;
    if (run.attempt === 1) throw new Error("once more");
  }),
);
const floods = createFunction({ id: "floods" }, async ({ step, run }) =>
  step.run("flood", async () => {
    const { write } = run.output("tokens");
    await write("first");
    await gate;
    const codes = [write("x".repeat(20)), write("left out")].map((stored) =>
      stored.then(
        () => "stored",
        (error: Error & { code: string }) => error.code,
      ),
    );
    return Promise.all(codes);
  }),
);

describe.each(engines)("outputs of runs on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  let worker: Worker;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = createClient({ url: server.url, apiKey: server.adminKey });
    worker = createWorker({
      client,
      functions: [tells, live, floods, again],
      handleSignals: false,
      log: silent,
    });
    await worker.start();
  }, 60_000);
  afterAll(async () => {
    await worker.drain({ timeoutMs: 2_000 });
    await server.stop();
  });

  const start = async (id: string) => (await client.invokeFunction(id, {})).runId;
  const ended = (runId: string) => client.waitForRun(runId, { timeout: "20s" });
  async function allOf(runId: string, options = {}) {
    const all: OutputChunk[] = [];
    for await (const chunk of client.runs.output(runId, "tokens", options)) all.push(chunk);
    return all;
  }
  const dataOf = (chunks: readonly OutputChunk[]) => chunks.map(({ data }) => data);
  const held = () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    [gate, goOn] = [promise, resolve];
  };

  test("a chunk is stored once over replays; a failed try and attempt are superseded, what was completed stays", async () => {
    const runId = await start("tells");
    const gone: unknown[] = [];
    const read = await allOf(runId, { onSuperseded: (range: unknown) => gone.push(range) });
    expect(await ended(runId)).toMatchObject({ status: "completed", output: words.join("") });
    const stored = await allOf(runId);
    expect(dataOf(stored)).toEqual([{ attempt: 2 }, ...words, "end"]);
    const every = await allOf(runId, { superseded: true });
    expect(every.map(({ index }) => index)).toEqual(every.map((_, at) => at));
    expect(dataOf(every.filter((one) => one.superseded))).toEqual([{ attempt: 1 }, ...words.slice(0, 3)]);
    // Who read along was told what counts no more: the rest is the same.
    const isGone = (index: number) =>
      (gone as { from: number; until: number }[]).some(({ from, until }) => from <= index && index < until);
    expect(read.filter(({ index }) => !isGone(index))).toEqual(stored);
    expect(await allOf(runId, { from: every.length - 1 })).toMatchObject([{ data: "end" }]);
  }, 60_000);

  test("who reads along has a chunk while its step computes, over Connect and as server-sent events", async () => {
    held();
    const runId = await start("live");
    const reader = client.runs.output(runId, "tokens");
    expect((await reader.next()).value).toEqual({ index: 0, attempt: 1, data: "first" });
    const headers = { authorization: `Bearer ${server.adminKey}` };
    const events = await fetch(`${server.url}/api/v1/runs/${runId}/outputs/tokens`, { headers });
    expect(events.headers.get("content-type")).toContain("text/event-stream");
    const pieces = (events.body as ReadableStream<Uint8Array>).getReader();
    const decoder = new TextDecoder();
    let text = "";
    const readText = async () => {
      const { value, done } = await pieces.read();
      text += decoder.decode(value);
      return done;
    };
    while (!text.includes('"first"')) await readText();
    expect(text.startsWith(": output\n\n")).toBe(true);
    expect((await client.getRun(runId)).status).toBe("running");
    goOn();
    const rest: unknown[] = [];
    for await (const { data } of reader) rest.push(data);
    expect(rest).toEqual(words);
    while (!(await readText()));
    expect(text).toContain('id: 4\nevent: chunk\ndata: {"index":4,"attempt":1,"data":" time"}\n\n');
    expect(text).toMatch(/event: end\ndata: \{"index":5,"status":"completed"\}\n\n$/);
    const again = await fetch(`${server.url}/api/v1/runs/${runId}/outputs/tokens`, {
      headers: { ...headers, "last-event-id": "3" },
    });
    expect((await again.text()).match(/^id: .*$/gm)).toEqual(["id: 4"]);
    expect(await client.runs.outputs(runId)).toMatchObject([
      { name: "other", chunks: 1, tail: '{"n":1}' },
      { name: "tokens", chunks: 5, tail: `first${words.join("")}` },
    ]);
  }, 60_000);

  test("readers at once, from wherever they begin, each get every chunk once and in order", async () => {
    held();
    const runId = await start("live");
    const readers = Array.from({ length: 60 }, (_, place) => allOf(runId, { from: place % 6 }));
    const headers = { authorization: `Bearer ${server.adminKey}` };
    const events = Array.from({ length: 20 }, async () =>
      (await fetch(`${server.url}/api/v1/runs/${runId}/outputs/tokens`, { headers })).text(),
    );
    await peek(runId, 1);
    goOn();
    const all = ["first", ...words];
    for (const [place, read] of (await Promise.all(readers)).entries()) {
      expect(dataOf(read)).toEqual(all.slice(place % 6));
      expect(read.map(({ index }) => index)).toEqual(all.map((_, at) => at).slice(place % 6));
    }
    for (const text of await Promise.all(events))
      expect([...(text.match(/^id: .*$/gm) ?? [])]).toEqual(all.map((_, at) => `id: ${at}`));
    // What was read along is not kept for those who come when it is overwritten.
    expect((await server.rpc("SvcService", "RedactRun", { runId, reason: "a test" })).status).toBe(200);
    expect(dataOf(await allOf(runId))).toEqual(all.map(() => null));
  }, 60_000);

  test("writes of many runs at once are stored, and each is refused by itself", async () => {
    const bodies = Array.from({ length: 30 }, (_, place) => ({
      ...{ runId: `run_${place}`, executionSeq: 1, leaseToken: "none", name: "tokens", chunks: [place] },
    }));
    const answers = await Promise.all(bodies.map((body) => server.rpc("SvcService", "WriteRunOutput", body)));
    expect(answers.map(({ status }) => status)).toEqual(bodies.map(() => 404));
  }, 60_000);

  test("a fence that holds no more, a run that is over, and what is too large are refused", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "hand" });
    const hand = pullWorker(server, "hand");
    await hand.register("hand");
    const runId = await start("hand");
    const [job] = await until(
      async () => {
        const jobs = await hand.poll();
        return jobs.length > 0 && jobs;
      },
      { about: "the job" },
    );
    const fence = { runId, executionSeq: `${job!.execution_seq}`, leaseToken: job!.lease_token };
    const write = (body: object) =>
      server.rpc("SvcService", "WriteRunOutput", { ...fence, name: "tokens", chunks: ["a"], ...body });
    expect((await write({})).status).toBe(200);
    // The same once more, with one more.
    expect((await write({ chunks: ["a", "b"] })).status).toBe(200);
    expect(dataOf([...(await peek(runId, 2))])).toEqual(["a", "b"]);
    for (const [body, status, said] of [
      [{ leaseToken: "another" }, 409, "superseded"],
      [{ executionSeq: "9" }, 409, "superseded"],
      [{ runId: "run_none" }, 404, "not found"],
      [{ name: "" }, 400, "name"],
      [{ name: "a\u0000" }, 400, "name"],
      [{ chunks: ["x".repeat(65_536)] }, 400, "chunks[0]"],
      [{ chunks: Array.from({ length: 5 }, () => "x".repeat(60_000)) }, 400, "chunks"],
      [{ chunks: Array.from({ length: 2_001 }, () => 1) }, 400, "chunks"],
      [{ stepId: "x".repeat(1_025), first: "0" }, 400, "stepId"],
    ] as const) {
      const answer = await write(body);
      expect([answer.status, JSON.stringify(answer.body)]).toEqual([status, expect.stringContaining(said)]);
    }
    for (let count = 0; count < 7; count++) expect((await write({ name: `n${count}` })).status).toBe(200);
    expect(await write({ name: "one more" })).toMatchObject({ status: 400 });
    await hand.complete(job!);
    expect((await write({ chunks: ["late"], first: "2" })).status).toBe(409);
    expect(dataOf(await allOf(runId))).toEqual(["a", "b"]);
  }, 60_000);

  async function peek(runId: string, count: number) {
    const found: OutputChunk[] = [];
    for await (const chunk of client.runs.output(runId, "tokens")) {
      found.push(chunk);
      if (found.length === count) break;
    }
    return found;
  }

  test("an output has its bound, which fails no run; rows go with the run, and no list or SQL shows them", async () => {
    const { store } = server.running.domain;
    const large = JSON.stringify(["x".repeat(outputBytesMax - 14)]);
    /** The output has these bytes; where its chunks have fewer, the rest is superseded. */
    const flooded = async (total: number, chunks = '["first"]', id = "floods") => {
      held();
      const runId = await start(id);
      await peek(runId, 1);
      await store.write((session) =>
        session.run(sql`UPDATE run_outputs SET total = ${total}, chunks = ${chunks} WHERE run_id = ${runId}`),
      );
      goOn();
      const { status, output } = await ended(runId);
      expect(status).toBe("completed");
      return { runId, output };
    };
    const refused = ["failed_precondition", "failed_precondition"];
    expect((await flooded(outputBytesMax - 10, large)).output).toEqual(refused);
    expect((await flooded(outputBytesMax - 10)).output).toEqual(["stored", "stored"]);
    // A step that is tried again has room for what it writes anew.
    const retried = await flooded(outputBytesMax, large, "again");
    expect(dataOf(await allOf(retried.runId))).toEqual([2]);
    const { runId, output } = await flooded(outputStoredBytesMax - 10);
    expect(output).toEqual(refused);
    expect(dataOf(await allOf(runId))).toEqual(["first"]);
    expect(client.sql("SELECT * FROM run_outputs")).rejects.toThrow("run_outputs");
    await store.write((session) =>
      session.run(sql`UPDATE runs SET created_at = 1, ended_at = 1 WHERE id = ${runId}`),
    );
    await server.api("/api/v1/retention", { method: "PUT", body: { retention_days: 1 } });
    await server.running.tick("runs.expire");
    expect(await store.all(sql`SELECT first FROM run_outputs WHERE run_id = ${runId}`)).toEqual([]);
  }, 60_000);

  test("it is asked as the run; another's and a missing run are none; readers have their number", async () => {
    held();
    const runId = await start("live");
    await peek(runId, 1);
    const denied = await lookerKey(server, "no-outputs", {
      actions: "runs:read",
      resources: `run:*:${runId}`,
    });
    const path = `/api/v1/runs/${runId}/outputs`;
    for (const door of [path, `${path}/tokens`])
      expect((await server.api(door, { key: denied.key })).status).toBe(403);
    const other = createClient({ url: server.url, apiKey: denied.key });
    expect(other.runs.output(runId, "tokens").next()).rejects.toMatchObject({ code: "permission_denied" });
    const { tenancy, keys } = server.running.domain;
    const at = { orgId: "org_default", projectId: "proj_default" };
    const { id: environmentId } = await tenancy.createEnvironment({ ...at, name: "elsewhere" });
    const { key } = await keys.create({
      ...{ orgId: at.orgId, environmentId, name: "other", roleIds: ["role_admin"] },
    });
    for (const door of [path, `${path}/tokens`]) expect((await server.api(door, { key })).status).toBe(404);
    expect((await server.api("/api/v1/runs/run_none/outputs/tokens")).status).toBe(404);
    expect((await server.api(`${path}/tokens?from=-1`)).status).toBe(400);
    const stop = new AbortController();
    const open = (signal = stop.signal) =>
      fetch(`${server.url}${path}/tokens`, {
        headers: { authorization: `Bearer ${server.adminKey}` },
        signal,
      });
    // The reader that has left gives its seat back when it is next looked at.
    const few = await Promise.all(Array.from({ length: outputReadersMax - 1 }, () => open()));
    expect(few.every(({ status }) => status === 200)).toBe(true);
    await until(async () => (await open()).status === 429, { about: "the last seat" });
    stop.abort();
    const later = new AbortController();
    await until(async () => (await open(later.signal)).status === 200, { about: "a free seat" });
    later.abort();
    goOn();
    await ended(runId);
  }, 60_000);
});

test("outputs in a test are what counts in the end", async () => {
  const { outputs, attempts } = await testFunction(tells).crashAfter("every").run();
  expect([outputs, attempts]).toEqual([{ tokens: [{ attempt: 2 }, ...words, "end"] }, 2]);
});
