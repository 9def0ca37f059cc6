import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Named, openWaitsOn } from "../support/open-waits.ts";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("several children of a run on %s", (engine) => {
  let server: TestServer;
  const { rpc, rows, tick, begin, named, leave, sleep, child, next, done } = openWaitsOn(() => server);

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  }, 30_000);
  afterAll(() => server.stop());

  test("children run at once, and each end counts", async () => {
    await rpc("RegisterFunction", { id: "open-child" });
    const children = pullWorker(server, "w-open-child");
    await children.register("open-child");
    const { worker, job, runId } = await begin("parent");
    await leave(worker, job, child("one", "open-child"), child("two", "open-child"));
    const jobsOf: Assignment[] = [];
    const jobs = await until(
      async () => {
        await tick("runs.children");
        const got = await children.poll(5);
        jobsOf.push(...got);
        return jobsOf.length === 2 && jobsOf;
      },
      { about: "both children" },
    );
    await children.complete(jobs[1]!, 2);
    await tick("runs.children");
    const second = await next(worker);
    await leave(worker, second, { name: "one" }, { name: "two" });
    await children.complete(jobs[0]!, 1);
    await tick("runs.children");
    const last = await next(worker);
    await worker.report(last, {
      status: "yielded",
      yield: named(last, sleep("none", 1)),
      yields: [named(last, child("one", "open-child")), named(last, child("two", "open-child"))],
    });
    const end = await until(
      async () => {
        await tick("runs.children");
        const [found] = await worker.poll();
        return found && found.completed_steps.length === 2 && found;
      },
      { about: "both results" },
    );
    expect(end.completed_steps.map(({ output }) => output).toSorted()).toEqual([1, 2]);
    await worker.complete(end);
    expect(await rows("invocations", runId, "parent_run_id")).toBe(0);
  });

  test("a child that failed and one that completed come together, and poison no tick", async () => {
    const kids = pullWorker(server, "w-mixed-child");
    await rpc("RegisterFunction", { id: "mixed-child", retry: { maxAttempts: 1 } });
    await kids.register("mixed-child");
    const { worker, job } = await begin("mixed-parent");
    await leave(worker, job, child("one", "mixed-child"), child("two", "mixed-child"));
    const jobs: Assignment[] = [];
    await until(
      async () => {
        await tick("runs.children");
        jobs.push(...(await kids.poll(5)));
        return jobs.length === 2;
      },
      { about: "both children" },
    );
    const failed = { status: "failed", error: { message: "no", retryable: false } };
    await Promise.all([kids.complete(jobs[0]!, 1), kids.report(jobs[1]!, failed)]);
    await tick("runs.children");
    const second = await until(
      async () => {
        await tick("runs.children");
        return (await worker.poll())[0];
      },
      { about: "both ends" },
    );
    if (second.completed_steps.length < 2) await leave(worker, second, { name: "one" }, { name: "two" });
    const last = second.completed_steps.length < 2 ? await next(worker) : second;
    expect(Object.fromEntries(done(last))).toEqual({ one: "completed", two: "failed" });
    await worker.complete(last);
  });

  test("a child that started and one that never can come together, too", async () => {
    const { worker, job } = await begin("mixed-start");
    const started: Named = { name: "one", type: "invoke_function_async", function_id: "mixed-child" };
    await leave(worker, job, started, child("two", "mixed-none"));
    await tick("runs.children");
    const second = await next(worker);
    expect(Object.fromEntries(done(second))).toEqual({ one: "completed", two: "failed" });
    await worker.complete(second);
  });
});
