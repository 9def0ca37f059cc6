import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { statusOf, stepOf, visit } from "./visit.ts";

// What somebody does who sees the dashboard for the first time, by nothing but what stands in the pages.

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({ engine: "libsql", settings: { dev: true } });
});
afterAll(() => server.stop());

/** Steps and clicks that a person may need: each of them has to be found first. */
const clicksMax = 12;

/** Where screenshots of each step go when somebody wants to look: `DASHBOARD_SHOTS=/tmp/shots`. */
const shots = process.env.DASHBOARD_SHOTS;

/** A function whose second version fails where its first did not, and one run of each. */
async function plant(id: string) {
  const version = { id, recording: true, triggers: [{ event: `${id}.placed` }] };
  const worker = pullWorker(server, `worker-${id}`);
  const run = async () => {
    const { body } = await server.rpc("SvcService", "Emit", { event: `${id}.placed`, data: { order: 17 } });
    const job = await until(async () => (await worker.poll())[0], { about: "a job" });
    return { id: body.runIds[0] as string, job };
  };
  await server.rpc("SvcService", "RegisterFunction", { ...version, retry: { maxAttempts: 3 } });
  await worker.register(id);
  const first = await run();
  const lookup = (job: typeof first.job) => stepOf(job, "lookup", { output: { price: 12 } });
  const charged = stepOf(first.job, "charge", { output: { receipt: "r-1" } });
  await worker.report(first.job, {
    status: "completed",
    output: "sold",
    steps: [lookup(first.job), charged],
  });
  await server.rpc("SvcService", "RegisterFunction", { ...version, retry: { maxAttempts: 1 } });
  const second = await run();
  const error = { message: "the bank answered 503 Service Unavailable", code: "BANK_AWAY", retryable: false };
  const steps = [lookup(second.job), stepOf(second.job, "charge", { status: "failed", error })];
  await worker.report(second.job, { status: "failed", error, steps });
  return { worker, runId: second.id };
}

/** Counts what is pressed, each by the word that is read. */
function visitor(page: Page, name: string) {
  let clicks = 0;
  const press = async (role: "link" | "button", word: string | RegExp) => {
    const target = page.getByRole(role, { name: word, exact: true }).first();
    await target.waitFor();
    clicks++;
    if (shots !== undefined) await page.screenshot({ path: `${shots}/first-${name}-${clicks}.png` });
    await target.click();
  };
  return { press, clicks: () => clicks };
}

test("a new user finds out why a run failed, injects an output, and rolls the function back", async () => {
  let attempts = 0;
  await inChrome(async (browser) => {
    const id = `order-${++attempts}`;
    const { worker, runId } = await plant(id);
    const { page, complaints } = await visit(browser, server, { path: "~" });
    const { press, clicks } = visitor(page, id);

    // Why did it fail?
    await press("link", /^the bank answered/);
    await page.getByText("BANK_AWAY").first().waitFor();
    await page.getByText("Step charge failed").waitFor();
    await press("link", "charge");

    // What the bank would have answered is written by hand.
    await press("button", "Inject an output…");
    await page.getByLabel("Output (JSON)").fill('{"receipt": "by hand"}');
    await page.getByLabel("Reason").fill("charged by phone");
    await press("button", "Inject");
    const job = await until(async () => (await worker.poll())[0], { about: "the resumed run" });
    expect(job.completed_steps.find(({ name }) => name === "charge")?.output).toEqual({ receipt: "by hand" });
    await worker.complete(job, "sold");
    await page.getByRole("heading", { level: 1 }).getByText("Completed").waitFor();
    expect(await statusOf(server, runId)).toBe("RUN_STATUS_COMPLETED");

    // The version before did not fail.
    await press("link", `${id}, version 2`);
    await press("link", /^Versions/);
    await press("button", "Roll back to this…");
    await press("button", "Roll back");
    await page.getByRole("listitem").filter({ hasText: "Version 3" }).waitFor();
    const { body } = await server.rpc("SvcService", "GetFunction", { id });
    expect(body.retry.maxAttempts).toBe(3);

    expect(clicks()).toBeLessThanOrEqual(clicksMax);
    expect(complaints).toEqual([]);
    await page.context().close();
  });
});
