import { expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import { startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { scrolledThrough, sessionOf, visit } from "./visit.ts";

/** More than the list of runs keeps while its reader stays at its beginning. */
const runs = 4_300;
const batch = 100;

test("a page keeps the newest of many runs, and reads the older ones again who are scrolled to", async () => {
  const server = await startTestServer({ engine: "libsql" });
  try {
    const session = await sessionOf(server, "viewer");
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
  } finally {
    await server.stop();
  }
}, 120_000);
