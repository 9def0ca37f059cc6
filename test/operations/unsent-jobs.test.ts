import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type PullWorker, pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const triesMax = 10;

/** A job that cannot be handed out goes back alone, later each time, and its run fails in the end. */
describe.each(engines)("jobs that cannot be handed out, on %s", (engine) => {
  let server: TestServer;
  let refusing: ReturnType<typeof Bun.serve>;

  beforeAll(async () => {
    refusing = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: () => new Response("no", { status: 500 }),
    });
    server = await startTestServer({
      engine,
      settings: { pollHoldMs: 0, pushAllowPrivate: ["127.0.0.0/8"], signingKey: "k".repeat(40) },
    });
  });
  afterAll(async () => {
    await server.stop();
    refusing.stop(true);
  });

  const rpc = async (method: string, body: unknown) => (await server.rpc("SvcService", method, body)).body;
  const run = (id: string) => rpc("GetRun", { id });
  const store = () => server.running.domain.store;
  const change = (text: Parameters<TestServer["running"]["domain"]["store"]["all"]>[0]) =>
    store().write((session) => session.run(text));
  const start = async (event: string) => (await rpc("Emit", { event, data: {} })).runIds[0] as string;
  const historyOf = (runId: string) =>
    store().all<{ type: string; detail: string }>(
      sql`SELECT type, detail FROM run_history WHERE run_id = ${runId} ORDER BY sequence`,
    );
  const triesOf = async (runId: string) =>
    (await historyOf(runId)).flatMap(({ type, detail }) =>
      type === "run.released" ? (JSON.parse(detail).tries ?? []) : [],
    );

  /** Claims the run again and again, as time would; answers the pause behind each try. The tries between are skipped. */
  async function exhaust(runId: string, worker: PullWorker): Promise<Map<number, number>> {
    const pauses = new Map<number, number>();
    for (const tries of [1, 2, 3, triesMax - 1]) {
      if (tries === triesMax - 1)
        await change(sql`UPDATE run_history SET detail = ${JSON.stringify({ tries: tries - 1 })}
          WHERE run_id = ${runId} AND type = 'run.released' AND sequence =
            (SELECT history_count FROM executions WHERE run_id = ${runId})`);
      await until(
        async () => {
          if ((await triesOf(runId)).at(-1) === tries) return true;
          await worker.poll(10);
          return false;
        },
        { about: `try ${tries}` },
      );
      const last = await store().one<{ due: number }>(sql`SELECT e.wake_at - h.at AS due FROM executions e
        JOIN run_history h ON h.run_id = e.run_id AND h.sequence = e.history_count WHERE e.run_id = ${runId}`);
      pauses.set(tries, last!.due);
      // Not before its time, however often somebody asks.
      const before = (await historyOf(runId)).length;
      for (let asked = 0; asked < 3; asked++) await worker.poll(10);
      expect((await historyOf(runId)).length).toBe(before);
      await change(sql`UPDATE executions SET wake_at = ${Date.now()} WHERE run_id = ${runId}`);
      await server.running.tick("workers.dispatch");
    }
    await until(
      async () => {
        await worker.poll(10);
        return (await run(runId)).status === "RUN_STATUS_FAILED";
      },
      { about: "the end" },
    );
    return pauses;
  }

  test("one unreadable secret keeps back the jobs that need it, and no others", async () => {
    for (const name of ["GOOD", "BAD"])
      await server.api("/api/v1/secrets", { body: { name, value: `value of ${name}` } });
    await change(sql`UPDATE secrets SET sealed = 'spoilt' WHERE name = 'BAD'`);
    for (const [id, secrets] of [
      ["needs-bad", ["BAD"]],
      ["needs-good", ["GOOD"]],
      ["needs-none", []],
    ] as const)
      await rpc("RegisterFunction", { id, triggers: [{ event: "secrets.go" }], secrets });
    const worker = pullWorker(server, "secretive");
    await worker.register("needs-bad", "needs-good", "needs-none");
    const { runIds } = await rpc("Emit", { event: "secrets.go", data: {} });
    const handed = await worker.poll(10);
    expect(handed.map((job) => job.function_id).sort()).toEqual(["needs-good", "needs-none"]);
    for (const job of handed) expect((await worker.complete(job)).status).toBe(200);
    const kept = runIds.find((id: string) => !handed.some((job) => job.run_id === id)) as string;

    const pauses = await exhaust(kept, worker);
    for (const [tries, pause] of pauses) {
      const most = Math.min(300_000, 1_000 * 2 ** (tries - 1));
      expect(pause).toBeGreaterThan(most / 2);
      expect(pause).toBeLessThanOrEqual(most + 100);
    }
    const { error, attempt } = await run(kept);
    expect([error.code, attempt]).toEqual(["SECRET_UNREADABLE", 1]);
    expect(error.message).not.toContain("value of");
    expect((await historyOf(kept)).length).toBeLessThanOrEqual(2 * triesMax + 2);
  }, 120_000);

  test("a definition that cannot be read keeps back the runs pinned to it", async () => {
    await rpc("RegisterFunction", { id: "changed", triggers: [{ event: "changed.go" }] });
    const pinned = await start("changed.go");
    await rpc("RegisterFunction", { id: "changed", triggers: [{ event: "changed.go" }], timeoutMs: 60_000 });
    await change(sql`DELETE FROM function_versions WHERE function_id = 'changed' AND version = 1`);
    const current = await start("changed.go");
    const worker = pullWorker(server, "changing");
    await worker.register("changed");
    const handed = await worker.poll(10);
    expect(handed.map((job) => job.run_id)).toEqual([current]);
    await exhaust(pinned, worker);
    expect((await run(pinned)).error.code).toBe("DEFINITION_UNREADABLE");
  }, 120_000);

  test("no run fails because a table is missing: it goes on when the table is back", async () => {
    const definition = { id: "tabled", triggers: [{ event: "tabled.go" }] };
    await rpc("RegisterFunction", definition);
    const runId = await start("tabled.go");
    await rpc("RegisterFunction", { ...definition, timeoutMs: 60_000 });
    // From here on the node knows the second version alone.
    await start("tabled.go");
    const worker = pullWorker(server, "tabling");
    await worker.register("tabled");
    await change(sql`ALTER TABLE function_versions RENAME TO versions_away`);
    try {
      for (const tries of [1, triesMax, triesMax + 1]) {
        if (tries === triesMax)
          await change(sql`UPDATE run_history SET detail = ${JSON.stringify({ tries: tries - 1 })}
            WHERE run_id = ${runId} AND type = 'run.released' AND sequence =
              (SELECT history_count FROM executions WHERE run_id = ${runId})`);
        await until(
          async () => {
            if ((await triesOf(runId)).at(-1) === tries) return true;
            await worker.poll(10);
            return false;
          },
          { about: `try ${tries}` },
        );
        await change(sql`UPDATE executions SET wake_at = ${Date.now()} WHERE run_id = ${runId}`);
        await server.running.tick("workers.dispatch");
      }
    } finally {
      await change(sql`ALTER TABLE versions_away RENAME TO function_versions`);
    }
    const back = await until(async () => (await worker.poll(1))[0], { about: "the job" });
    expect((await worker.complete(back)).status).toBe(200);
    expect((await run(runId)).status).toBe("RUN_STATUS_COMPLETED");
  }, 120_000);

  test("a refusing endpoint of 6,000 characters fails its run at once, and has a breaker", async () => {
    const letters = Array.from({ length: 6_000 }, (_, at) =>
      String.fromCharCode(97 + ((at * at * 7 + at) % 26)),
    );
    const endpointUrl = `http://127.0.0.1:${refusing.port}/${letters.join("")}`;
    await rpc("RegisterFunction", {
      id: "pushed",
      endpointUrl,
      triggers: [{ event: "pushed.go" }],
      retry: { maxAttempts: 1 },
    });
    await server.running.tick("push.look");
    const runId = await start("pushed.go");
    const ended = await until(
      async () => {
        const found = await run(runId);
        return found.status === "RUN_STATUS_FAILED" && found;
      },
      { about: "the end of the call" },
    );
    expect([ended.error.code, ended.attempt]).toEqual(["PUSH_TRANSPORT", 1]);
    const { body } = await server.api("/api/v1/circuit-breakers");
    expect(body).toMatchObject([{ function_id: "pushed", endpoint: endpointUrl, consecutive_fails: 1 }]);
    const key = Buffer.from(body[0].key).toString("base64url");
    expect((await server.api(`/api/v1/circuit-breakers/${key}/reset`, { method: "POST" })).status).toBe(200);
    expect((await server.api("/api/v1/circuit-breakers")).body).toEqual([]);
  });
});
