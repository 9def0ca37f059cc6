import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { emit, functionWithWorker, sessionOf, visit } from "./visit.ts";

/** A page that does not answer for longer looks frozen. */
const taskMsMax = 1_000;

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
});
