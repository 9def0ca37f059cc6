import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { inChrome } from "../support/chrome.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { driven } from "./driven.ts";
import { emit, functionWithWorker, sessionOf, statusOf, visit } from "./visit.ts";
import { notGranted } from "./writes.ts";

describe.each(engines)("steering runs in the dashboard on %s", (engine) => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    session = await sessionOf(server, "developer");
  }, 300_000);
  afterAll(() => server.stop());

  test("a run is cancelled with a reason, and shown as it was before", async () => {
    const worker = await functionWithWorker(server, "stopped", "stopped.asked");
    await inChrome(async (browser) => {
      const id = await emit(server, "stopped.asked");
      await worker.job();
      const { page } = await visit(browser, server, { path: `runs/${id}`, session });
      await page.getByRole("button", { name: "Cancel…" }).click();
      await page.getByLabel("Reason").fill("ordered twice");
      await page.getByRole("button", { name: "Cancel the run" }).click();
      const title = page.getByRole("heading", { level: 1 });
      await title.getByText("Cancelled").waitFor();
      expect(await statusOf(server, id)).toBe("RUN_STATUS_CANCELLED");

      await page.getByLabel("Time", { exact: true }).fill("0");
      await title.getByText("Queued").waitFor();
      expect(new URL(page.url()).searchParams.get("at")).not.toBeNull();
      expect(await page.getByRole("button", { name: "Resume…" }).count()).toBe(0);
      await page.getByRole("button", { name: "Back to now" }).click();
      await title.getByText("Cancelled").waitFor();
      await page.context().close();
    });
  });

  test("all runs that the filters match are cancelled once their number was agreed to", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "many", triggers: [{ event: "many.asked" }] });
    await inChrome(async (browser) => {
      const ids = await Promise.all([1, 2, 3].map(() => emit(server, "many.asked")));
      const path = "runs?function=many&status=waiting_for_capacity";
      const { page } = await visit(browser, server, { path, session });
      await page.locator(`[data-run="${ids[0]}"]`).waitFor();
      await page.getByRole("button", { name: "Cancel…" }).click();
      await page.getByRole("dialog").getByText("Queued").waitFor();
      await page.getByRole("button", { name: /^Cancel [36] runs$/ }).click();
      await until(
        async () =>
          (await Promise.all(ids.map((id) => statusOf(server, id)))).every((one) => /CANCELLED/.test(one)),
        { about: "the repair" },
      );
      await page.getByRole("heading", { name: /^Cancel \d runs/ }).waitFor();
      await page.context().close();
    });
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven.steering)).toEqual([]);
  });
});
