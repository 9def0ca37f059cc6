import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { acting } from "./acting.ts";
import { driven } from "./driven.ts";
import { emit, functionWithWorker, sessionOf, statusOf, stepOf } from "./visit.ts";
import { notGranted } from "./writes.ts";

describe.each(engines)("what is done with runs in the dashboard on %s", (engine) => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    session = await sessionOf(server, "developer");
  }, 300_000);
  afterAll(() => server.stop());

  const rpc = async (method: string, body: object) => (await server.rpc("SvcService", method, body)).body;
  const stepsOf = async (runId: string) => (await rpc("GetRunSteps", { runId })).steps;
  /** As if the two minutes had passed in which a run is resumed once. */
  const closeWindow = (runId: string) =>
    server.running.domain.store.write((write) =>
      write.run(sql`UPDATE resumes SET resumed_at = resumed_at - 130000 WHERE run_id = ${runId}`),
    );
  const refused = { status: "failed", error: { message: "the till is away", retryable: false } };

  test("a run is paused and goes on, is given another output while it rests, and goes on from a step", async () => {
    const worker = await functionWithWorker(server, "held", "held.asked");
    const id = await emit(server, "held.asked");
    const job = await worker.job();
    await acting(server, engine, { path: `runs/${id}`, session }, async (on) => {
      await on.press("Pause");
      await on.told("Pause asked for");
      const done = {
        status: "progress",
        steps: [stepOf(job, "price", { output: { sum: 1 } })],
        step_offset: 0,
      };
      await worker.report(job, done);
      await on.heading("Held");
      await on.hands.press(on.page.locator("a.line", { hasText: "price" }));
      const typed = { "Output (JSON)": '{"sum": 2}', Reason: "the price was old" };
      await on.send({ opens: "Inject…", typed, sends: "Inject" });
      await on.told("Output of price replaced");
      expect((await stepsOf(id))[0]).toMatchObject({ output: { sum: 2 }, originalOutput: { sum: 1 } });

      const whole = on.page.locator(".page-actions");
      await on.send({ opens: "Resume…", within: whole, sends: "Resume" });
      await on.told("Run resumed");
      const second = await worker.job();
      expect(second.completed_steps[0]).toMatchObject({ name: "price", output: { sum: 2 } });
      const failed = { ...refused, steps: [stepOf(second, "charge", refused)] };
      await worker.report(second, failed);
      await on.heading("Failed");

      await closeWindow(id);
      await on.hands.press(on.page.locator("a.line", { hasText: "price" }));
      await on.send({ opens: "Resume from here…", sends: "Resume" });
      const third = await worker.job();
      expect(third.completed_steps).toEqual([]);
      await worker.complete(third, { paid: true });
      await on.heading("Completed");
    });
    const { events } = (await server.api("/api/v1/audit?limit=100")).body;
    expect(JSON.stringify(events)).toContain("the price was old");
  });

  test("a failed step is given an output, with which the run goes on", async () => {
    const worker = await functionWithWorker(server, "mended", "mended.asked");
    const id = await emit(server, "mended.asked");
    const job = await worker.job();
    await worker.report(job, { ...refused, steps: [stepOf(job, "charge", refused)] });
    await acting(server, engine, { path: `runs/${id}`, session }, async (on) => {
      await on.hands.press(on.page.locator("a.line", { hasText: "charge" }));
      const typed = { "Output (JSON)": '{"receipt": "by hand"}', Reason: "paid in cash" };
      await on.send({ opens: "Inject an output…", typed, sends: "Inject" });
      await on.told("Output of charge set, run resumed");
      const again = await worker.job();
      expect(again.completed_steps[0]).toMatchObject({ name: "charge", output: { receipt: "by hand" } });
      await worker.complete(again);
      await on.heading("Completed");
    });
  });

  test("a run is cancelled with all that it led to", async () => {
    await rpc("RegisterFunction", { id: "child" });
    const worker = await functionWithWorker(server, "parent", "parent.asked");
    const id = await emit(server, "parent.asked");
    const job = await worker.job();
    const asked = { type: "invoke_function", function_id: "child", input: {} };
    const { status, body } = await worker.leave(job, "ask", asked);
    expect([status, body]).toEqual([200, expect.anything()]);
    const child = await until(
      async () => {
        await server.running.tick("runs.children");
        return (await rpc("ListRuns", { functionId: "child" })).runs?.[0]?.id;
      },
      { about: "the child" },
    );
    await acting(server, engine, { path: `runs/${id}`, session }, async (on) => {
      const typed = { Reason: "not wanted", "Cancel the runs that it led to as well": true } as const;
      await on.send({ opens: "Cancel…", typed, sends: "Cancel the run" });
      await on.told("2 runs cancelled");
      await on.heading("Cancelled");
    });
    expect(await Promise.all([id, child].map((one) => statusOf(server, one)))).toEqual(
      Array.from({ length: 2 }, () => "RUN_STATUS_CANCELLED"),
    );
  });

  test("a run that is over is redacted with its event, shows no old text, and is deleted", async () => {
    const worker = await functionWithWorker(server, "erased", "erased.asked");
    const id = await emit(server, "erased.asked", { mail: "ada@example.com" });
    await worker.complete(await worker.job(), { sent: "ada@example.com" });
    const { eventId } = await rpc("GetRun", { id });
    const admin = await sessionOf(server, "admin");
    await acting(server, engine, { path: `runs/${id}`, session: admin }, async (on) => {
      await on.heading("Completed");
      const typed = { Reason: "article 17", "Redact the event that started it as well": true } as const;
      await on.send({ opens: "Redact…", typed, sends: "Redact the run" });
      await on.told("Run and event redacted");
      await on.page.getByText("$redacted").first().waitFor();
      expect(await on.page.content()).not.toContain("ada@example.com");
      expect(await on.page.getByRole("button", { name: "Copy as curl" }).count()).toBe(0);
      expect((await server.api(`/api/v1/events/${eventId}`)).body.data).toBeNull();
      await on.send({ opens: "Delete…", typed: { Reason: "article 17" }, sends: "Delete the run" });
      await on.told("Run deleted");
      await on.page.waitForURL(/runs$/);
    });
    expect((await server.rpc("SvcService", "GetRun", { id })).status).toBe(404);
  });

  test("what started a run is copied as a call that a shell runs, and starts another", async () => {
    const worker = await functionWithWorker(server, "copied", "copied.asked");
    const id = await emit(server, "copied.asked", { order: 17, note: "it's $HOME `date`" });
    await worker.complete(await worker.job());
    const permissions = ["clipboard-read", "clipboard-write"];
    await acting(server, engine, { path: `runs/${id}`, session, permissions }, async (on) => {
      await on.heading("Completed");
      await on.press("Copy as curl");
      await on.told("The call that starts it again copied");
      const command = await on.page.evaluate(() => navigator.clipboard.readText());
      const ran = Bun.spawn(["sh", "-c", command], {
        ...{ env: { PATH: process.env.PATH, SVC_API_KEY: server.adminKey }, stdout: "pipe" },
      });
      const { runIds } = (await new Response(ran.stdout).json()) as { runIds: string[] };
      expect((await rpc("GetRun", { id: runIds[0] })).input).toEqual({
        ...{ order: 17, note: "it's $HOME `date`" },
      });
    });
    await worker.complete(await worker.job());
  });

  test("selected runs go on, and so do all that the filters match, by event and by what the error says", async () => {
    const worker = await functionWithWorker(server, "few", "few.asked");
    const fail = async (end: object) => {
      const id = await emit(server, "few.asked");
      await worker.report(await worker.job(), end);
      return id;
    };
    const other = await fail({ status: "failed", error: { message: "no such order", retryable: false } });
    const first = await fail(refused);
    const others = [await fail(refused), await fail(refused), await fail(refused)];
    await acting(server, engine, { path: "runs?status=failed", session }, async (on) => {
      const row = (id: string) => on.page.locator(`[data-run="${id}"]`);
      await on.hands.fill(on.main.getByLabel("Event name"), "few.asked");
      await on.page.waitForURL(/name=few\.asked/);
      await row(other).waitFor();
      await on.hands.fill(on.main.getByLabel("Text of the error"), "TILL is");
      await on.page.waitForURL(/says=TILL/);
      await row(first).waitFor();
      expect(await row(other).count()).toBe(0);

      await on.hands.press(on.page.getByRole("checkbox", { name: `Select run ${first}` }));
      await on.send({ opens: "Resume…", sends: "Resume 1 run" });
      await on.told("1 run resumed");
      expect((await worker.job()).run_id).toBe(first);
      await row(first).waitFor({ state: "detached" });
      await on.send({ opens: "Resume…", typed: { Reason: "the till is back" }, sends: "Resume 3 runs" });
      await on.told("A repair works through 3 runs");
      const resumed = await Promise.all(others.map(() => worker.job()));
      expect(resumed.map(({ run_id }) => run_id).sort()).toEqual(others.toSorted());
    });
    expect(await statusOf(server, other)).toBe("RUN_STATUS_FAILED");
    expect(JSON.stringify((await server.api("/api/v1/repairs")).body)).toContain("the till is back");
  });

  test("a repair of many runs is held, goes on, and is stopped before its end", async () => {
    await rpc("RegisterFunction", { id: "mass", triggers: [{ event: "mass.asked" }] });
    const events = Array.from({ length: 100 }, () => ({ event: "mass.asked" }));
    for (let batch = 0; batch < 20; batch++) await rpc("TriggerBatch", { events });
    const found = async () => {
      const { repairs } = (await server.api("/api/v1/repairs")).body;
      return repairs.find(({ reason }: { reason: string }) => reason === "by mistake");
    };
    await acting(server, engine, { path: "runs?function=mass", session }, async (on) => {
      await on.send({ opens: "Cancel…", typed: { Reason: "by mistake" }, sends: "Cancel 2,000 runs" });
      await on.press("Pause");
      await on.heading("Paused");
      await on.press("Continue");
      await until(async () => (await found()).counts.done > 0, { about: "the first run" });
      await on.press("Stop");
      await on.heading("Stopped");
    });
    const repair = await found();
    expect(repair).toMatchObject({ status: "stopped", counts: { pending: 0, failed: 0 } });
    expect(repair.counts.undone).toBeGreaterThan(0);
    expect(repair.counts.done + repair.counts.undone).toBe(2_000);
  });

  test("a run whose deployment is gone says so, on its page and with the workers, and moves", async () => {
    const options = { pin: true, pinGone: "hold", retry: { maxAttempts: 2, initialDelayMs: 1 } };
    const worker = await functionWithWorker(server, "pinned", "pinned.asked", options);
    const path = "/api/v1/workers/worker-pinned";
    const register = (deployment: string) =>
      server.api(`${path}/register`, { body: { function_ids: ["pinned"], deployment } });
    await register("build-1");
    const id = await emit(server, "pinned.asked");
    const failed = { status: "failed", error: { message: "once", retryable: true } };
    await worker.report(await worker.job(), failed);
    await server.api(path, { method: "DELETE", body: {} });
    await until(
      async () => {
        for (const loop of ["runs.wake", "runs.pins"]) await server.running.tick(loop);
        return (await rpc("GetRun", { id })).pauseReason === "deployment_gone";
      },
      { about: "the run to be held" },
    );
    await acting(server, engine, { path: "workers", session }, async (on) => {
      const table = on.main.getByRole("table", { name: "Deployments" });
      // Workers, pinned runs, held ones.
      await table.getByRole("row", { name: /^build-1\s+0\b.*\s1\s+1\s+no$/ }).waitFor();
    });
    await acting(server, engine, { path: `runs/${id}`, session }, async (on) => {
      await on.heading("Deployment gone");
      await on.told("build-1");
      await on.press("Move to the newest deployment");
      await on.told("Moved");
      await register("build-2");
      expect((await worker.job()).run_id).toBe(id);
    });
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven["actions-runs"])).toEqual([]);
  });
});
