import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { sql } from "../../src/kit/sql.ts";
import { breachesOf } from "../support/axe.ts";
import { inChrome } from "../support/chrome.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { driven } from "./driven.ts";
import { furnish } from "./furnish.ts";
import { makeSource, sendToSource, signed } from "./furnish-data.ts";
import { sessionOf, visit } from "./visit.ts";
import { notGranted } from "./writes.ts";

describe.each(engines)("what stands behind the dashboard's pages, on %s", (engine) => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    session = await sessionOf(server, "admin");
    await furnish(server);
  }, 300_000);
  afterAll(() => server.stop());

  const dialog = (page: Page) => page.getByRole("dialog");
  const press = (page: Page, name: string | RegExp) =>
    page.getByRole("button", { name, exact: typeof name === "string" }).click();
  const isIn = async (token: string) =>
    (await server.api("/api/v1/auth/session", { key: token })).status === 200;

  test("sessions are listed and ended, one's own and another's", async () => {
    const others = [await sessionOf(server, "admin"), await sessionOf(server, "admin")];
    const viewer = await sessionOf(server, "viewer");
    await inChrome(async (browser) => {
      const path = "access?tab=sessions";
      const { page, complaints } = await visit(browser, server, { path, session });
      const own = page.getByRole("table", { name: "Your sessions" });
      await own.getByText("this one").waitFor();
      expect(await own.getByRole("row").count()).toBe(4);
      await press(page, "End all others…");
      await dialog(page).getByRole("button", { name: "End all others", exact: true }).click();
      await page.getByText("Your other sessions ended").waitFor();
      await until(async () => (await own.getByRole("row").count()) === 2, { about: "the list" });
      expect(await Promise.all(others.map(isIn))).toEqual([false, false]);
      expect(await isIn(session)).toBe(true);

      const all = page.getByRole("table", { name: "Sessions of the organization" });
      const row = all.getByRole("row", { name: /viewer@example.test/ });
      expect(await breachesOf(page)).toEqual([]);
      await row.getByRole("button", { name: "End…" }).click();
      await dialog(page).getByRole("button", { name: "End the session" }).click();
      await row.waitFor({ state: "detached" });
      expect(await isIn(viewer)).toBe(false);
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a viewer sees and ends their own sessions, and a page whose session ended says so", async () => {
    const [here, there] = [await sessionOf(server, "viewer"), await sessionOf(server, "viewer")];
    await inChrome(async (browser) => {
      const { page: ended } = await visit(browser, server, { path: "access", session: there });
      await ended.getByText("Live", { exact: true }).waitFor();
      const { page } = await visit(browser, server, { path: "access", session: here });
      await page.getByText("this one").waitFor();
      expect(await page.getByRole("table").count()).toBe(1);
      await page.getByRole("button", { name: "End…" }).click();
      await dialog(page).getByRole("button", { name: "End the session" }).click();
      await until(async () => !(await isIn(there)), { about: "the end of the session" });
      await ended.getByRole("dialog", { name: "Your session has ended" }).waitFor();
      expect(await isIn(here)).toBe(true);
      for (const one of [page, ended]) await one.context().close();
    });
  });

  test("the rows behind a number that should be none are listed, and lead to their things", async () => {
    await server.rpc("AgentToolsService", "RegisterTool", {
      ...{ agentName: "lost", callbackUrl: "http://127.0.0.1:9/tools" },
      tools: [{ name: "tool", description: "", requiredScopes: [], timeoutMs: 1_000, inputSchemaJson: "{}" }],
    });
    const { store } = server.running.domain;
    await store.write((write) => write.run(sql`DELETE FROM agents WHERE name = 'lost'`));
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "integrity", session });
      await page
        .getByRole("row", { name: /agents\.tools/ })
        .getByRole("link", { name: "1" })
        .click();
      const rows = page.getByRole("table", { name: "Rows" });
      await rows.getByText("agent").waitFor();
      expect(await breachesOf(page)).toEqual([]);
      await rows.getByRole("link", { name: "lost.tool" }).click();
      await page.getByRole("heading", { name: /lost\.tool/ }).waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
    await store.write((write) => write.run(sql`DELETE FROM agent_tools WHERE agent_name = 'lost'`));
  });

  test("a key's revisions are listed, read, compared, and follow what others put", async () => {
    const key = "/api/v1/kv/buckets/sessions/keys/users/ada";
    await inChrome(async (browser) => {
      const path = "kv/sessions?key=users/ada";
      const { page, complaints } = await visit(browser, server, { path, session });
      const table = page.getByRole("table", { name: "Revisions" });
      await table.getByRole("row", { name: /^2/ }).waitFor();
      await press(page, "Compare revision 2 with the one before");
      await page.getByText("From revision 1 to 2").waitFor();
      await page.locator(".diff-line.new", { hasText: "cart" }).waitFor();
      expect(await breachesOf(page)).toEqual([]);
      const { body } = await server.api(key, { method: "PUT", body: { name: "third" } });
      await table.getByRole("link", { name: `${body.revision}`, exact: true }).waitFor();
      await table.getByRole("link", { name: "1", exact: true }).click();
      await page.getByRole("definition").getByText("1", { exact: true }).first().waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("what gathers for one run stands on the page of its function", async () => {
    await server.rpc("SvcService", "RegisterFunction", {
      ...{ id: "digest", triggers: [{ event: "news" }], batch: { size: 5, timeoutMs: 600_000 } },
    });
    const { body } = await server.rpc("SvcService", "Emit", { event: "news", data: {} });
    await server.rpc("SvcService", "Emit", { event: "news", data: {} });
    await inChrome(async (browser) => {
      const path = "functions/digest?tab=serving";
      const { page, complaints } = await visit(browser, server, { path, session });
      const row = page.getByRole("table", { name: "Batches" }).getByRole("row", { name: /2 of 5/ });
      await row.getByText("Gathering").waitFor();
      expect(await breachesOf(page)).toEqual([]);
      await row.getByRole("link", { name: body.eventId }).click();
      await page.getByRole("heading", { name: /news/ }).waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("what a run appended and published, and the delivery that began it, lead to their pages", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "files", triggers: [{ event: "filing.paid" }] });
    const source = await makeSource(server, "filing", "what both know");
    const body = JSON.stringify({ amount: 3 });
    await sendToSource(server, source, { body, signature: signed("what both know", body) });
    const run = await until(
      async () => (await server.rpc("SvcService", "ListRuns", { functionId: "files" })).body.runs?.[0],
      { about: "the run" },
    );
    const headers = { "X-Svc-Run-ID": run.id };
    const append = {
      ...{ entityId: "ledger-1", entityType: "ledger", eventName: "filed", expectedVersion: -1 },
    };
    expect((await server.rpc("EntityStreamService", "AppendEvent", append, { headers })).status).toBe(200);
    const message = { topic: "filings", data: { filed: true } };
    expect((await server.rpc("PubSubService", "Publish", message, { headers })).status).toBe(200);
    await inChrome(async (browser) => {
      const path = `runs/${run.id}?tab=causes`;
      const { page, complaints } = await visit(browser, server, { path, session });
      const lead = async (name: string, place: RegExp) => {
        await page.getByRole("main").getByRole("link", { name, exact: true }).click();
        await page.waitForURL(place);
        await page.getByRole("heading", { level: 1 }).waitFor();
        await page.goBack();
      };
      await lead("ledger-1", /\/streams\/ledger-1\?at=1$/);
      await lead("filings", /\/topics\/filings$/);
      await lead(source.id, /\/webhooks-in\/whs_\w+\?delivery=/);
      await page.getByRole("link", { name: "ledger-1", exact: true }).waitFor();
      expect(await breachesOf(page)).toEqual([]);
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  }, 300_000);

  test("every number of the overview leads to the list behind it", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "counted", triggers: [{ event: "counted" }] });
    await server.rpc("SvcService", "Emit", { event: "counted", data: {} });
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "overview", session });
      await page.getByRole("table").waitFor();
      const alone = await page
        .locator("main :is(.number:not(th), .health li > :last-child)")
        .evaluateAll((all) =>
          all.filter((one) => !one.closest("a") && !one.querySelector("a")).map((one) => one.textContent),
        );
      expect(alone).toEqual([]);
      expect(await page.locator(".health a").count()).toBeGreaterThanOrEqual(5);
      await page
        .getByRole("row", { name: /^Runs started/ })
        .getByRole("link")
        .first()
        .click();
      await page.getByRole("heading", { name: "Runs", exact: true }).waitFor();
      expect(await page.getByLabel("Created").inputValue()).toBe("1m");
      await page.locator("[data-run]", { hasText: "counted" }).first().waitFor();
      await page.getByRole("link", { name: "Overview", exact: true }).click();
      await page.getByRole("link", { name: /^Queued/ }).click();
      await page.locator("[data-run]", { hasText: "counted" }).first().waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  }, 300_000);

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven.behind)).toEqual([]);
  });
});
