import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { emit, functionWithWorker, scrolledThrough, sessionOf, visit } from "./visit.ts";

/** A page that does not answer for longer looks frozen. */
const taskMsMax = 1_000;
/** More than the list of runs keeps while its reader stays at its beginning. */
const runs = 4_300;
const batch = 100;

/** Notes tasks of the page's thread that are long, from its beginning. */
const noteTasks = (page: Page) =>
  page.evaluate(() => {
    const tasks: number[] = [];
    const notes = new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) tasks.push(duration);
    });
    notes.observe({ type: "longtask", buffered: true });
    Object.assign(window, { tasks });
  });

const tasksOf = (page: Page): Promise<number[]> =>
  page.evaluate(() => (window as unknown as { tasks: number[] }).tasks);

describe("a page with much to show", () => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
    session = await sessionOf(server, "viewer");
  });
  afterAll(() => server.stop());

  test("opens an output of 4 MiB, and all of it, without a task that freezes it", async () => {
    const worker = await functionWithWorker(server, "much", "much.asked");
    const id = await emit(server, "much.asked");
    const fields = Array.from({ length: 40_000 }, (_, at) => [`field ${at}`, "v".repeat(80)]);
    const output = { ...Object.fromEntries(fields), text: "t".repeat(200_000) };
    const { status } = await worker.report(await worker.job(), { status: "completed", output });
    expect(status).toBe(200);
    await inChrome(async (browser) => {
      const { page } = await visit(browser, server, { path: `runs/${id}`, session });
      await noteTasks(page);
      await page.getByRole("button", { name: /^Show all \d\.\d MiB of the output/ }).click();
      await page.getByRole("button", { name: "… 39,901 more" }).waitFor();
      expect((await tasksOf(page)).filter((ms) => ms > taskMsMax)).toEqual([]);
      await page.context().close();
    });
  });

  test("keeps the newest of many runs, and reads the older ones again who are scrolled to", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "many", triggers: [{ event: "many.asked" }] });
    await inChrome(async (browser) => {
      let reads = 0;
      const countReads = async (page: Page) =>
        page.on("requestfinished", (request) => {
          if (request.url().endsWith("/ListRuns")) reads++;
        });
      const path = "runs?function=many";
      const { page, complaints } = await visit(browser, server, { path, session, before: countReads });
      await page.getByText("Live", { exact: true }).waitFor();
      await until(() => reads === 2, { about: "the first page, and the one that the subscription asks for" });
      await page.getByText("0 runs").waitFor();
      const ids: string[] = [];
      for (let sent = 0; sent < runs; sent += batch) {
        const events = Array.from({ length: batch }, () => ({ event: "many.asked", data: {} }));
        const { body } = await server.rpc("SvcService", "TriggerBatch", { events });
        for (const { runIds } of body.results) ids.push(runIds[0]);
      }
      await page.getByText(/^4,300 runs /).waitFor({ timeout: 45_000 });
      const rows = () =>
        page.locator(".virtual-all").evaluate((all) => Number.parseInt(all.style.height, 10) / 44);
      await until(async () => (await rows()) < 3_000, { about: "older rows to be given up" });
      const seen = await scrolledThrough(page);
      expect(seen.length).toBe(runs);
      expect(seen).toEqual(ids.toSorted().reverse());
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  }, 120_000);
});
