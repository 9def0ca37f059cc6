import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { breachesOf } from "../support/axe.ts";
import { inChrome } from "../support/chrome.ts";
import { openProxy, type TcpProxy } from "../support/proxy.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { driven } from "./driven.ts";
import { emit, sessionOf, visit } from "./visit.ts";
import { notGranted } from "./writes.ts";

/** Before the editors, which come when they are opened. */
const zippedBytesMax = 250 * 1_024;

describe.each(engines)("the shell of the dashboard on %s", (engine) => {
  let server: TestServer;
  let proxy: TcpProxy;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    proxy = await openProxy(() => server.running.port);
  }, 300_000);
  afterAll(async () => {
    await proxy.stop();
    await server.stop();
  });

  test("is served with a policy that runs its own files only, and small", async () => {
    const page = await fetch(`${server.url}/dashboard/org_default/env_default/runs`);
    const policy = page.headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toMatch(/unsafe-|\*|https?:/);
    const names = [...(await page.text()).matchAll(/\/dashboard\/assets\/[^"]+/g)].map(([name]) => name);
    expect(names.length).toBeGreaterThanOrEqual(2);
    let zipped = 0;
    for (const name of names) {
      const file = await fetch(`${server.url}${name}`, {
        headers: { "accept-encoding": "gzip" },
        decompress: false,
      });
      expect(file.headers.get("cache-control")).toContain("immutable");
      expect(file.headers.get("content-encoding")).toBe("gzip");
      zipped += (await file.arrayBuffer()).byteLength;
      const known = { "if-none-match": file.headers.get("etag") ?? "" };
      expect((await fetch(`${server.url}${name}`, { headers: known })).status).toBe(304);
    }
    expect(zipped).toBeLessThan(zippedBytesMax);
    expect((await fetch(`${server.url}/dashboard/assets/other.js`)).status).toBe(404);
    const elsewhere = await fetch(`${server.url}/dashboard/assets/main-0fanother.js`);
    expect(elsewhere.headers.get("cache-control")).toBe("no-store");
    expect(elsewhere.status).toBe(200);
    // It asks for the session when somebody has signed in, and would be given what was answered before.
    expect(await (await fetch(`${server.url}/dashboard/sign-in`)).text()).not.toContain("preload");
    const root = await fetch(server.url, { redirect: "manual" });
    expect(root.headers.get("location")).toBe("/dashboard/");
  });

  test("asks once for what every page reads first, before its scripts run", async () => {
    const session = await sessionOf(server, "viewer");
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "overview", session });
      await page.getByText("Live", { exact: true }).waitFor();
      const read = await page.evaluate(() =>
        performance
          .getEntriesByType("resource")
          .filter(
            ({ name }) => name.includes("/api/v1/auth/session") || name.endsWith("/api/v1/environments"),
          )
          .map((entry) => [new URL(entry.name).pathname, (entry as PerformanceResourceTiming).initiatorType]),
      );
      expect(read.sort()).toEqual([
        ["/api/v1/auth/session", "link"],
        ["/api/v1/environments", "link"],
      ]);
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("the link of the first start signs in once, from this machine", async () => {
    const link = server.running.signInToken!;
    await inChrome(async (browser) => {
      // Another browser takes the place of one that hangs: the link may be used then.
      const { page } = await visit(browser, server, { path: `~sign-in#${link}` });
      await page
        .getByRole("heading", { name: "Overview" })
        .or(page.getByText("the sign-in link is used"))
        .first()
        .waitFor();
      expect(page.url()).not.toContain(link);
      expect(
        await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }])),
      ).not.toContain(link);
      await page.context().close();
    });
    const again = await server.api("/api/v1/auth/login-by-link", { key: null, body: { link } });
    expect(again.status).toBe(401);
  });

  test("signs in by password, and offers a viewer nothing that writes", async () => {
    await sessionOf(server, "viewer");
    await server.rpc("SvcService", "RegisterFunction", { id: "looked-at", triggers: [{ event: "looked" }] });
    const id = await emit(server, "looked");
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: `runs/${id}` });
      await page.getByLabel("Email").fill("viewer@example.test");
      await page.getByLabel("Password").fill("wrong");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByText("Invalid email or password").waitFor();
      await page.getByLabel("Password").fill("correct horse battery staple");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("heading", { name: /looked-at/ }).waitFor();
      const names = await page.getByRole("main").getByRole("button").allTextContents();
      expect(names.filter((name) => /Cancel|Pause|Resume|Patch|Inject/.test(name))).toEqual([]);
      const refused = await page.evaluate(async (run) => {
        const answer = await fetch("/svc.v1.SvcService/CancelRun", {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ id: run }),
        });
        return answer.status;
      }, id);
      expect(refused).toBe(403);
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("finds by the palette and the keys, and keeps what was typed when the session ends", async () => {
    await server.rpc("SvcService", "RegisterFunction", {
      ...{ id: "found-by-name", triggers: [{ event: "found.asked" }] },
    });
    await inChrome(async (browser) => {
      const session = await sessionOf(server, "developer");
      const { page } = await visit(browser, server, { path: "overview", session });
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      await page.keyboard.press("g");
      await page.keyboard.press("r");
      await page.getByRole("heading", { name: "Runs" }).waitFor();
      await page.keyboard.press("Control+k");
      await page.getByLabel(/^Search for a page/).fill("found-by");
      await page.getByRole("option", { name: /found-by-name/ }).waitFor();
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: /found-by-name/ }).waitFor();

      await page.keyboard.press("Control+k");
      await page.getByLabel(/^Search for a page/).fill("invoke");
      await page.getByRole("option", { name: /On this page/ }).waitFor();
      await page.keyboard.press("Enter");
      await page.getByLabel("Input (JSON)").fill('{"typed": "by hand"}');
      await server.api("/api/v1/auth/logout", { key: session, method: "POST" });
      // The page may have said by itself that the session is over, and stands in front of the button then.
      await page.getByRole("button", { name: "Invoke", exact: true }).dispatchEvent("click");
      const ended = page.getByRole("dialog", { name: "Your session has ended" });
      await ended.getByLabel("Email").fill("developer@example.test");
      await ended.getByLabel("Password").fill("correct horse battery staple");
      await ended.getByRole("button", { name: "Sign in" }).click();
      await ended.waitFor({ state: "detached" });
      expect(await page.getByLabel("Input (JSON)").inputValue()).toBe('{"typed": "by hand"}');
      await page.getByRole("button", { name: "Invoke", exact: true }).click();
      await page.getByText("by hand").waitFor();
      await page.context().close();
    });
  });

  test("a lost connection is shown, comes back, and no event of the tail is missing or double", async () => {
    const session = await sessionOf(server, "viewer");
    await inChrome(async (browser) => {
      const url = `http://127.0.0.1:${proxy.port}`;
      const path = "events?pattern=tail.*";
      const { page } = await visit(browser, { url, env: server.env }, { path, session });
      const before = await server.rpc("SvcService", "Emit", { event: "tail.one" });
      await page.locator(`[data-event="${before.body.eventId}"]`).waitFor();
      proxy.closed = true;
      proxy.cut();
      await page.getByText("Connection lost").waitFor();
      const missed = await server.rpc("SvcService", "Emit", { event: "tail.two" });
      proxy.closed = false;
      await page.locator(`[data-event="${missed.body.eventId}"]`).waitFor();
      const after = await server.rpc("SvcService", "Emit", { event: "tail.three" });
      await page.locator(`[data-event="${after.body.eventId}"]`).waitFor();
      const shown = await page
        .locator("[data-event]")
        .evaluateAll((all) => all.map((one) => one.getAttribute("data-event")));
      const own = [after, missed, before].map(({ body }) => body.eventId);
      expect(shown.filter((id) => own.includes(id))).toEqual(own);
      expect(new Set(shown).size).toBe(shown.length);
      await page.context().close();
    });
  });

  test("says over a page since when what it shows is old, while reading it again fails", async () => {
    const session = await sessionOf(server, "viewer");
    await server.rpc("SvcService", "RegisterFunction", { id: "aged", triggers: [{ event: "aged" }] });
    await emit(server, "aged");
    const reads = {
      overview: "**/api/v1/overview",
      "runs?function=aged&status=waiting_for_capacity": "**/svc.v1.SvcService/ListRuns",
      schedules: "**/api/v1/schedules",
    };
    await inChrome(async (browser) => {
      for (const [path, read] of Object.entries(reads)) {
        const { page, complaints } = await visit(browser, server, { path, session });
        await page.getByText("Live", { exact: true }).waitFor();
        await page.locator("main[aria-busy=false]").waitFor();
        const old = page.getByText(/^What you see was read at \d\d:\d\d:\d\d/);
        expect(await old.count()).toBe(0);
        await page.route(read, (route) => route.abort());
        // What its frames tell makes the page read again.
        await emit(server, "aged");
        await server.rpc("SvcService", "CancelRun", { id: await emit(server, "aged") });
        await old.waitFor();
        expect(await page.getByRole("status").filter({ has: old }).textContent()).toContain(
          "Reading it again fails: The server does not answer.",
        );
        expect(await page.getByRole("main").getByRole("alert").count()).toBe(0);
        expect(await breachesOf(page)).toEqual([]);
        await page.unroute(read);
        await page.getByRole("status").getByRole("button", { name: "Read again" }).click();
        await old.waitFor({ state: "detached" });
        expect(complaints).toEqual([]);
        await page.context().close();
      }
    });
  }, 300_000);

  test("says it, too, while a read is not answered", async () => {
    const session = await sessionOf(server, "viewer");
    await inChrome(async (browser) => {
      const before = (opened: Page) => opened.clock.install();
      const { page } = await visit(browser, server, { path: "overview", session, before });
      await page.getByText("Live", { exact: true }).waitFor();
      await page.getByRole("row", { name: /^Runs started/ }).waitFor();
      await page.route("**/api/v1/overview", () => {});
      await page.clock.runFor(6_000);
      expect(await page.getByText(/^What you see was read/).count()).toBe(0);
      await page.clock.runFor(12_000);
      await page.getByText("The server has not answered yet.").waitFor();
      await page.context().close();
    });
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven.shell)).toEqual([]);
  });
});
