import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { inChrome } from "../support/chrome.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { emit, functionWithWorker, sessionOf, stepOf, visit } from "./visit.ts";

describe.each(engines)("runs in the dashboard on %s", (engine) => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    session = await sessionOf(server, "developer");
  });
  afterAll(() => server.stop());

  test("a run is seen as it comes, moves and ends", async () => {
    const worker = await functionWithWorker(server, "seen", "seen.asked");
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "runs?function=seen", session });
      await page.getByText("Live", { exact: true }).waitFor();
      const id = await emit(server, "seen.asked", { order: 17 });
      const row = page.locator(`[data-run="${id}"]`);
      await row.waitFor();
      const job = await worker.job();
      await row.getByText("Running").waitFor();
      await worker.report(job, {
        status: "completed",
        output: { paid: true },
        steps: [stepOf(job, "charge", { output: { receipt: "r-1" } })],
      });
      await row.getByText("Completed").waitFor();

      await row.getByRole("link").click();
      await page.getByRole("link", { name: /charge/ }).click();
      await page.getByRole("complementary").getByText("r-1").waitFor();
      await page.getByRole("link", { name: /History/ }).click();
      await page.getByText("run.completed").waitFor();
      await page.getByRole("link", { name: "Causes and effects" }).click();
      await page.getByRole("link", { name: "seen.asked" }).first().waitFor();
      expect(new URL(page.url()).searchParams.get("tab")).toBe("causes");
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a failed run is repaired: its step is patched and it goes on from there", async () => {
    const worker = await functionWithWorker(server, "mended", "mended.asked");
    await inChrome(async (browser) => {
      const id = await emit(server, "mended.asked");
      const job = await worker.job();
      const error = { message: "the card was declined", code: "DECLINED", retryable: false };
      const steps = [stepOf(job, "lookup", { output: { price: 1 } })];
      await worker.report(job, { status: "failed", error, steps });
      const { page } = await visit(browser, server, { path: `runs/${id}`, session });
      await page.getByText("the card was declined").waitFor();
      await page.getByRole("link", { name: /lookup/ }).click();
      await page.getByRole("button", { name: "Patch…" }).click();
      await page.getByLabel("Output (JSON)").fill("{ no json");
      await page.getByRole("button", { name: "Patch", exact: true }).click();
      await page.getByText("The output is not JSON").waitFor();
      await page.getByLabel("Output (JSON)").fill('{"price": 2}');
      await page.getByLabel("Reason").fill("the price list was old");
      await page.getByRole("button", { name: "Patch", exact: true }).click();
      await page.getByText("Original beside what replaced it").waitFor();
      const found = await server.rpc("SvcService", "GetRunSteps", { runId: id });
      expect(found.body.steps[0]).toMatchObject({ output: { price: 2 }, originalOutput: { price: 1 } });

      await page.getByRole("button", { name: "Resume…" }).click();
      await page.getByRole("button", { name: "Resume", exact: true }).click();
      const again = await worker.job();
      expect(again.completed_steps[0]).toMatchObject({ name: "lookup", output: { price: 2 } });
      await worker.complete(again);
      await page.getByRole("heading", { level: 1 }).getByText("Completed").waitFor();
      await page.context().close();
    });
  });
});
