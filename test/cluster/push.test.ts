import { afterAll, beforeAll, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

let home: Home;
let nodes: TestServer[] = [];
const asked: string[] = [];
let answer: () => Response | Promise<Response> = () => new Response(null, { status: 500 });
const endpoint = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  idleTimeout: 0,
  async fetch(request) {
    asked.push(((await request.json()) as { run_id: string }).run_id);
    return answer();
  },
});

beforeAll(async () => {
  home = await makeHome("postgres");
  for (const _ of [1, 2])
    nodes.push(await startTestServer({ engine: "postgres", home, settings: { pushAllowPrivate: "all" } }));
}, 120_000);
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  nodes = [];
  endpoint.stop(true);
  await home?.remove();
}, 120_000);

const tick = (loop: string) => Promise.all(nodes.map((node) => node.running.tick(loop)));
const emit = async (at: number) =>
  (await nodes[at]!.rpc("SvcService", "Emit", { event: "go" })).body.runIds[0] as string;
const run = async (id: string) => (await nodes[0]!.rpc("SvcService", "GetRun", { id })).body;
const stateAt = async (node: TestServer) => (await node.api("/api/v1/circuit-breakers")).body[0]?.state;

test("two nodes: an open breaker spares the endpoint on both, one tries it, and both go on", async () => {
  const retry = { maxAttempts: 2, initialDelayMs: 1, backoffFactor: 1, maxDelayMs: 1 };
  const endpointUrl = `http://127.0.0.1:${endpoint.port}/shared`;
  await nodes[0]!.rpc("SvcService", "RegisterFunction", {
    id: "shared",
    endpointUrl,
    triggers: [{ event: "go" }],
    retry,
  });
  await tick("push.look");
  for (let at = 0; at < 4; at++) await emit(at % 2);
  await until(async () => (await stateAt(nodes[0]!)) === "open", { about: "the open breaker" });
  expect(await stateAt(nodes[1]!)).toBe("open");
  await tick("breakers.look");
  // Calls that were under way when it opened have ended once nobody holds a lease.
  const { store } = nodes[0]!.running.domain;
  const leased = () => store.all(sql`SELECT run_id FROM executions WHERE state = 'leased'`);
  await until(async () => (await leased()).length === 0, { about: "the calls to end" });

  const callsBefore = asked.length;
  const spared = await Promise.all(Array.from({ length: 10 }, (_, at) => emit(at % 2)));
  await until(
    async () => {
      await tick("workers.dispatch");
      const all = await Promise.all(spared.map(run));
      return all.every(({ status }) => status === "RUN_STATUS_WAITING_FOR_CAPACITY");
    },
    { about: "all runs to wait" },
  );
  for (const id of spared) expect((await run(id)).error).toBeUndefined();
  expect(asked.length).toBe(callsBefore);

  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  answer = async () => {
    await held;
    return Response.json({ status: "completed" });
  };
  await store.write((session) => session.run(sql`UPDATE breakers SET opened_at = opened_at - 31000`));
  await tick("breakers.look");
  await until(() => asked.length > callsBefore, { about: "the trial" });
  await tick("breakers.look");
  await tick("workers.dispatch");
  expect(await stateAt(nodes[1]!)).toBe("open");
  expect(asked.length).toBe(callsBefore + 1);

  release();
  await until(
    async () => (await Promise.all(spared.map(run))).every(({ status }) => status === "RUN_STATUS_COMPLETED"),
    { about: "all runs to complete" },
  );
  for (const id of spared) expect(asked.filter((one) => one === id)).toHaveLength(1);
  expect(await stateAt(nodes[0]!)).toBeUndefined();
}, 90_000);
