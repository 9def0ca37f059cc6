import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { livedTime } from "../support/lived.ts";
import { type Caller, engines, makeHome, spawnServer, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Asked {
  path: string;
  body: { run_id: string; attempt: number };
}

describe.each(engines)("push mode while things change on %s", (engine) => {
  let endpoint: ReturnType<typeof Bun.serve>;
  let asked: Asked[];
  let answer: (asked: Asked) => Response | Promise<Response>;

  beforeEach(() => {
    asked = [];
    answer = () => Response.json({ status: "completed", result: { by: "endpoint" } });
    endpoint = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      idleTimeout: 0,
      async fetch(request) {
        const one = { path: new URL(request.url).pathname, body: (await request.json()) as Asked["body"] };
        asked.push(one);
        return answer(one);
      },
    });
  });
  afterEach(() => endpoint.stop(true));

  const endpointUrl = (path: string) => `http://127.0.0.1:${endpoint.port}${path}`;
  const rpc = async (server: Caller, method: string, body: unknown) =>
    (await server.rpc("SvcService", method, body)).body;
  const completed = (server: Caller, id: string) =>
    until(
      async () => {
        const run = await rpc(server, "GetRun", { id });
        return run.status === "RUN_STATUS_COMPLETED" && run;
      },
      { about: `run ${id} to complete`, deadlineMs: 20_000 },
    );

  test("a server whose polls are not held answers on while it serves push functions", async () => {
    const server = await startTestServer({ engine, settings: { pollHoldMs: 0, pushAllowPrivate: "all" } });
    try {
      const triggers = [{ event: "go" }];
      await rpc(server, "RegisterFunction", { id: "idle", endpointUrl: endpointUrl("/idle"), triggers });
      await server.running.tick("push.look");
      // A caller that asked on and on would let each of them wait for a second.
      const tookMs: number[] = [];
      const lived = await livedTime(server.home.place.databaseUrl);
      for (let at = 0; at < 10; at++) {
        const since = lived.now();
        await rpc(server, "ListFunctions", {});
        tookMs.push(lived.now() - since);
      }
      await lived.stop();
      expect(tookMs.sort((one, other) => one - other)[5]).toBeLessThan(300);
      const { runIds } = await rpc(server, "Emit", { event: "go" });
      await completed(server, runIds[0]);
    } finally {
      await server.stop();
    }
  }, 120_000);

  test("runs that waited for workers go to the endpoint once their function is pushed", async () => {
    const server = await startTestServer({ engine, settings: { pushAllowPrivate: "all" } });
    try {
      const triggers = [{ event: "go" }];
      await rpc(server, "RegisterFunction", { id: "moves", triggers });
      const { runIds } = await rpc(server, "Emit", { event: "go" });
      await rpc(server, "RegisterFunction", { id: "moves", endpointUrl: endpointUrl("/moves"), triggers });
      await server.running.tick("push.look");
      expect((await completed(server, runIds[0])).output).toEqual({ by: "endpoint" });
      expect(asked).toHaveLength(1);
    } finally {
      await server.stop();
    }
  }, 120_000);

  test("the endpoint of a version that is no more is spared by a breaker of its own", async () => {
    const server = await startTestServer({ engine, settings: { pushAllowPrivate: "all" } });
    try {
      answer = ({ path }) =>
        path === "/old"
          ? new Response("no", { status: 502 })
          : Response.json({ status: "completed", result: 1 });
      const triggers = [{ event: "go" }];
      const retry = { maxAttempts: 100, initialDelayMs: 20, maxDelayMs: 20 };
      const register = (path: string) =>
        rpc(server, "RegisterFunction", { id: "moved", endpointUrl: endpointUrl(path), triggers, retry });
      await register("/old");
      await server.running.tick("push.look");
      const { runIds } = await rpc(server, "Emit", { event: "go" });
      const breaker = async () => (await server.api("/api/v1/circuit-breakers")).body[0];
      await until(async () => (await breaker())?.state === "open", {
        about: "an open breaker",
        deadlineMs: 20_000,
      });
      // It stays so for longer than this test may take.
      await server.running.domain.store.write((session) =>
        session.run(sql`UPDATE breakers SET opened_at = opened_at + 3600000`),
      );
      await server.running.tick("breakers.look");
      await register("/new");
      await server.running.tick("push.look");
      const calls = asked.filter(({ path }) => path === "/old").length;
      const attempts = async () => (await rpc(server, "GetRun", { id: runIds[0] })).attempt;
      // The new endpoint is served meanwhile, and the old run neither called nor charged.
      for (let number = 0; number < 5; number++) {
        const one = await rpc(server, "Emit", { event: "go" });
        await completed(server, one.runIds[0]);
      }
      await until(
        async () => (await rpc(server, "GetRun", { id: runIds[0] })).status === "RUN_STATUS_RUNNING",
        { about: "the old run to be handed out", deadlineMs: 20_000, everyMs: 5 },
      );
      await server.running.tick("push.look");
      expect(asked.filter(({ path }) => path === "/old")).toHaveLength(calls);
      // Five failed; whatever happens to the sixth, it is not spent.
      expect(await attempts()).toBe(6);
      expect(await breaker()).toMatchObject({ state: "open", consecutive_fails: 5 });
    } finally {
      await server.stop();
    }
  }, 120_000);

  test("a call that its node did not survive is made again when the lease ends, on the same attempt", async () => {
    const home = await makeHome(engine);
    const settings = { leaseMs: 5_000, pushAllowPrivate: "true" };
    const server = await spawnServer({ engine, home, settings });
    try {
      answer = () => (asked.length === 1 ? new Promise<Response>(() => {}) : Response.json(done));
      const done = { status: "completed", result: { call: 2 } };
      const triggers = [{ event: "go" }];
      await rpc(server, "RegisterFunction", { id: "cut", endpointUrl: endpointUrl("/cut"), triggers });
      const { runIds } = await rpc(server, "Emit", { event: "go" });
      await until(() => asked.length === 1, { about: "the first call" });
      await server.kill9();
      await server.restart();
      expect((await completed(server, runIds[0])).output).toEqual({ call: 2 });
      expect(asked.map(({ body }) => [body.run_id, body.attempt])).toEqual([
        [runIds[0], 1],
        [runIds[0], 1],
      ]);
      expect((await server.api("/api/v1/circuit-breakers")).body).toEqual([]);
    } finally {
      await server.stop();
      await home.remove();
    }
  }, 90_000);
});
