import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { restoredStateOf } from "../../src/domain/engine/runs/wakes/sweep.ts";
import { sql } from "../../src/kit/sql.ts";
import { pauseWords, runWord } from "../../src/sdk/wire/pause-words.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

type HistoryRow = Parameters<typeof restoredStateOf>[0][number];

describe.each(engines)("a run that was held and is resumed, on %s", (engine) => {
  let server: TestServer;
  const call = (method: string, body: unknown) => server.rpc("SvcService", method, body);
  const rpc = async (method: string, body: unknown) => (await call(method, body)).body;
  const run = (id: string) => rpc("GetRun", { id });
  const write = (query: ReturnType<typeof sql>) =>
    server.running.domain.store.write((session) => session.run(query));
  const begin = async (name: string) => {
    await rpc("RegisterFunction", { id: name, triggers: [{ event: `${name}.asked` }] });
    const worker = pullWorker(server, `w-${name}`);
    await worker.register(name);
    await rpc("Emit", { event: `${name}.asked` });
    const [job] = await worker.poll();
    return { worker, job: job!, runId: job!.run_id };
  };
  const sleepFor = (ms: number) => ({ type: "sleep", until: new Date(Date.now() + ms).toISOString() });
  const waitFor = (event: string) => ({ type: "wait_for_event", event_filter: { event, timeout: "1h" } });
  const stepOf = (job: { run_id: string }, name: string, output: unknown) => ({
    ...{ id: stepIdOf(job, name), name, type: "invoke", status: "completed", output },
  });
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  });
  afterAll(() => server.stop());

  const standing = (runId: string) =>
    server.running.domain.store.one<{ state: string; wake_at: number; waiting_step_id: string }>(
      sql`SELECT state, wake_at, waiting_step_id FROM executions WHERE run_id = ${runId}`,
    );
  const later = async (runId: string) => {
    await write(sql`UPDATE executions SET wake_at = 0 WHERE run_id = ${runId}`);
    await server.running.tick("runs.wake");
  };
  const heldIn = async (name: string, yielded: object) => {
    const { worker, job, runId } = await begin(name);
    await worker.report(job, { status: "progress", steps: [stepOf(job, "one", 1)], step_offset: 0 });
    await worker.leave(job, "stands", yielded);
    const before = await standing(runId);
    expect(await rpc("PauseRun", { runId })).toEqual({ status: "paused" });
    const target = { runId, stepId: stepIdOf(job, "one"), newOutput: "2", reason: "tried" };
    expect((await call("InjectStepOutput", target)).status).toBe(200);
    return { worker, job, runId, before };
  };

  test("goes on to sleep until the same time, and then from what was written", async () => {
    const { worker, runId, before } = await heldIn("held-sleep", sleepFor(60_000));
    expect(await rpc("ResumeRun", { runId })).toMatchObject({
      status: "RUN_STATUS_PAUSED",
      pauseReason: "sleep",
    });
    expect(await standing(runId)).toEqual(before!);
    expect(await worker.poll()).toEqual([]);
    await later(runId);
    const [next] = await worker.poll();
    expect(next!.completed_steps).toMatchObject([
      { name: "one", output: 2 },
      { name: "stands", status: "completed", output: null },
    ]);
  });

  test("goes on to wait until the same time, and fails then", async () => {
    const { runId, before } = await heldIn("held-wait", waitFor("held.never"));
    expect(await rpc("ResumeRun", { runId })).toMatchObject({ pauseReason: "wait_event" });
    expect(await standing(runId)).toEqual(before!);
    await later(runId);
    expect(await run(runId)).toMatchObject({
      status: "RUN_STATUS_FAILED",
      error: { code: "WAIT_TIMEOUT" },
    });
  });

  test.each(["settled", "fresh"])(
    "hears of the event that came meanwhile, its wait being %s",
    async (kind) => {
      const event = `held.${kind}`;
      const { worker, job, runId } = await heldIn(`held-${kind}`, waitFor(event));
      if (kind === "settled") await server.running.tick("runs.matcher");
      await rpc("Emit", { event, data: { n: 1 } });
      await server.running.tick("runs.matcher");
      await server.running.tick("runs.matcher");
      expect(await standing(runId)).toMatchObject({
        state: "held",
        waiting_step_id: stepIdOf(job, "stands"),
      });
      await rpc("ResumeRun", { runId });
      const [next] = await until(
        async () => {
          await server.running.tick("runs.matcher");
          const jobs = await worker.poll();
          return jobs.length > 0 && jobs;
        },
        { about: "the job" },
      );
      expect(next!.completed_steps).toMatchObject([
        { name: "one", output: 2 },
        { name: "stands", status: "completed", output: { name: event, data: { n: 1 } } },
      ]);
    },
  );

  test("hears of an event that comes afterwards", async () => {
    const { worker, runId } = await heldIn("held-after", waitFor("held.after"));
    await rpc("ResumeRun", { runId });
    await rpc("Emit", { event: "held.after", data: { n: 2 } });
    const [next] = await until(
      async () => {
        await server.running.tick("runs.matcher");
        const jobs = await worker.poll();
        return jobs.length > 0 && jobs;
      },
      { about: "the job" },
    );
    expect(next!.completed_steps.at(-1)).toMatchObject({ name: "stands", output: { data: { n: 2 } } });
  });

  test("does its steps again where it is told to", async () => {
    const { worker, job, runId } = await heldIn("held-from", sleepFor(60_000));
    await rpc("ResumeRun", { runId, fromStep: stepIdOf(job, "one") });
    const [next] = await worker.poll();
    expect(next!.completed_steps).toEqual([]);
  });

  test("is by its history alone what it is", async () => {
    const { runId, before } = await heldIn("held-told", sleepFor(60_000));
    await rpc("ResumeRun", { runId });
    const told = await server.running.domain.store.all<HistoryRow>(
      sql`SELECT sequence, type, at, detail FROM run_history WHERE run_id = ${runId} ORDER BY sequence`,
    );
    expect(told.slice(-3).map(({ type }) => type)).toEqual(["step.patched", "run.resumed", "run.slept"]);
    const sleep = { stepId: before!.waiting_step_id, until: before!.wake_at };
    expect(restoredStateOf(told)).toMatchObject({ state: "sleeping", sleep });
  });

  test("is found, as sleepers and waiters are, by the word for why it is paused", async () => {
    const sleeper = await begin("why-sleeps");
    await sleeper.worker.leave(sleeper.job, "nap", sleepFor(60_000));
    const waiter = await begin("why-waits");
    await waiter.worker.leave(waiter.job, "wait", waitFor("why.never"));
    const held = await heldIn("why-held", sleepFor(60_000));
    type Listed = { id: string; status: string; pauseReason: string };
    const listed = async (statuses: string[]): Promise<Listed[]> =>
      (await rpc("ListRuns", { search: "why-", statuses })).runs ?? [];
    for (const [word, { runId }] of Object.entries({
      ...{ sleeping: sleeper, RUN_STATUS_WAITING_FOR_EVENT: waiter, held },
    })) {
      const found = await listed([word]);
      expect(found.map(({ id }) => id)).toEqual([runId]);
      expect(word.toLowerCase()).toEndWith(runWord("paused", found[0]!.pauseReason));
    }
    for (const both of [["sleeping", "held"], ["paused"]])
      expect((await listed(both)).length).toBe(both.length === 2 ? 2 : 3);
    expect(await listed(["waiting_for_child"])).toEqual([]);
    const refused = await call("ListRuns", { statuses: ["asleep"] });
    expect(refused).toMatchObject({ status: 400, body: { code: "invalid_argument" } });
    for (const word of Object.values(pauseWords)) expect(refused.body.message).toContain(word);
    const filter = { search: "why-", statuses: ["held"] };
    const preview = await server.api("/api/v1/repairs/preview", { body: { action: "cancel", filter } });
    expect(preview.body).toMatchObject({ total_count: 1, by_status: { paused: 1 } });
  });
});
