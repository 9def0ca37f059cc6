import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { sql } from "../../src/kit/sql.ts";
import { inChrome } from "../support/chrome.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { driven } from "./driven.ts";
import { furnish, policyIn } from "./furnish.ts";
import { emit, functionWithWorker, platformSessionOf, sessionOf, visit } from "./visit.ts";
import { notGranted } from "./writes.ts";

describe("operating by the dashboard", () => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
    session = await sessionOf(server, "admin");
    await furnish(server);
  }, 300_000);
  afterAll(() => server.stop());

  const press = (page: Page, name: string) => page.getByRole("button", { name, exact: true }).click();
  const close = (page: Page) => page.keyboard.press("Escape");
  const dialog = (page: Page) => page.getByRole("dialog");

  test("a key is put, seen as others change it, and an old revision is refused and shown", async () => {
    const { api } = server;
    const path = "/api/v1/kv/buckets/sessions/keys/users/ada";
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "kv", session });
      await page.getByRole("link", { name: "sessions" }).click();
      await page.getByLabel("Keys that begin with").fill("users/a");
      await page.getByRole("link", { name: "users/ada" }).first().click();
      await page.getByText("cart").waitFor();
      await press(page, "Put…");
      await dialog(page).getByLabel("Value").fill('{"name": "mine"}');
      await api(path, { method: "PUT", body: { name: "theirs" } });
      await dialog(page).getByRole("button", { name: "Put", exact: true }).click();
      await dialog(page)
        .getByRole("alert")
        .getByText(/revision/)
        .waitFor();
      await close(page);
      await page.getByText('"theirs"').waitFor();
      await page.getByLabel("As of revision").fill("2");
      await press(page, "Show");
      await page.getByText("cart").waitFor();
      await press(page, "The newest");
      await page.getByText('"theirs"').waitFor();
      await press(page, "Put a key…");
      await dialog(page).getByLabel("Key", { exact: true }).fill("users/alan");
      await dialog(page).getByLabel("Value").fill("enigma");
      await dialog(page).getByRole("button", { name: "Put", exact: true }).click();
      await page.getByText('"enigma"').waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
    const { body } = await api("/api/v1/kv/buckets/sessions/keys/users/alan");
    expect(Buffer.from(body.value, "base64").toString()).toBe("enigma");
  });

  test("a document is edited over what was read only, and rolled back; a secret's value never returns", async () => {
    const { api } = server;
    await server.rpc("SvcService", "RegisterFunction", {
      ...{ id: "charges", triggers: [{ event: "charge.asked" }], secrets: ["STRIPE_KEY"] },
    });
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "config/checkout", session });
      await press(page, "Edit…");
      await dialog(page).getByLabel("Document (JSON)").fill('{"currency": "CHF"}');
      await dialog(page).getByText('"currency": "CHF"').last().waitFor();
      await api("/api/v1/config/checkout", { body: { currency: "GBP" } });
      await dialog(page).getByText("Another has changed it since you opened it").waitFor();
      await dialog(page).getByRole("button", { name: "Save" }).click();
      await dialog(page).getByRole("alert").waitFor();
      await close(page);
      await page.getByText('"GBP"').first().waitFor();
      await page.getByRole("listitem").last().locator("summary").click();
      await page.getByRole("listitem").last().getByRole("button", { name: "Roll back to this…" }).click();
      await dialog(page).getByRole("button", { name: "Roll back", exact: true }).click();
      await until(async () => (await api("/api/v1/config/checkout")).body.data.currency === "EUR", {
        about: "the document of the first revision",
      });

      await page.goto(`${server.url}/dashboard/org_default/${server.env}/secrets/STRIPE_KEY`);
      await page.getByRole("link", { name: "charges" }).waitFor();
      await press(page, "Set the value…");
      const value = dialog(page).getByLabel("Value");
      expect(await value.getAttribute("type")).toBe("password");
      await value.fill("sk_never_seen");
      await dialog(page).getByRole("button", { name: "Set", exact: true }).click();
      await page.getByText("is at revision 2").waitFor();
      expect(await page.content()).not.toContain("sk_never_seen");

      await page.goto(`${server.url}/dashboard/org_default/${server.env}/tools/planner.plan`);
      await page.getByLabel("Input (JSON)").fill('{"goal": "ship"}');
      await press(page, "Invoke");
      await page.getByRole("main").getByRole("alert").waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a dead letter is tried again, and events are replayed once their number is seen", async () => {
    const { store } = server.running.domain;
    const emitted = await server.rpc("SvcService", "Emit", { event: "old.news" });
    await store.write((write) =>
      write.run(sql`INSERT INTO outbox (environment_id, id, event_id, topic, kind, payload, metadata, created_at,
          attempts, due_at, dead_at, last_error)
        VALUES (${server.env}, 'ob_dead', ${emitted.body.eventId}, 'events:old.news', 'mirror', '{"a":"b"}', '{}', 1,
          9, 1, 2, 'the bus is away')`),
    );
    const worker = await functionWithWorker(server, "late", "late.asked");
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "dead-letters", session });
      await page.getByText("the bus is away").waitFor();
      await press(page, "Payload");
      await dialog(page).getByText('"b"').waitFor();
      await close(page);
      await press(page, "Try again");
      await page.getByText("The bus took everything").waitFor();

      await page.goto(`${server.url}/dashboard/org_default/${server.env}/repairs`);
      await press(page, "Replay events…");
      await dialog(page).getByLabel("Function", { exact: true }).fill("late");
      await dialog(page).getByLabel("Events", { exact: true }).fill("old.*");
      await dialog(page).getByRole("button", { name: "Start 1 run" }).click();
      await page.getByRole("heading", { name: /^Replay/ }).waitFor();
      expect((await worker.job()).function_id).toBe("late");

      await page.goto(`${server.url}/dashboard/org_default/${server.env}/map`);
      const drawing = page.getByRole("region", { name: /^Drawing/ });
      await drawing.getByRole("link", { name: "late.asked" }).waitFor();
      await page.getByRole("table", { name: "Lines" }).getByRole("link", { name: "late.asked" }).waitFor();
      await emit(server, "late.asked");
      await drawing.locator(".map-line.moves text", { hasText: "+1" }).waitFor();
      await drawing.getByRole("link", { name: "late", exact: true }).click();
      await page.getByRole("link", { name: "Serving" }).click();
      await page.getByText("worker-late").waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a policy is tried before it binds, a key is seen once, and the audit is checked", async () => {
    const policy = await policyIn(server, "no wages");
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: `policies/${policy}`, session });
      await page.getByText("Not denied").waitFor();
      await page
        .getByText(/^Of the [\d,]+ audited calls of the last week it would have denied [\d,]+\.$/)
        .waitFor();
      await page.getByLabel("Name of the thing").fill("salary.paid");
      await page.getByText("Denied", { exact: true }).waitFor();
      await page.getByLabel("Condition (CEL)").fill("subject.id ==");
      await page.locator(".dry-run .form-error").waitFor();

      await page.goto(`${server.url}/dashboard/org_default/${server.env}/access?tab=keys`);
      await press(page, "New key…");
      await dialog(page).getByLabel("Name").fill("deployer");
      await dialog(page).getByLabel("viewer").check();
      await dialog(page).getByRole("button", { name: "Make" }).click();
      const shown = page.getByRole("dialog", { name: "The new key" });
      const key = (await shown.locator("pre").textContent()) ?? "";
      expect((await server.api("/api/v1/auth/session", { key })).body.roles).toEqual(["role_viewer"]);
      await page.keyboard.press("Escape");
      await shown.getByRole("button", { name: "I have kept it" }).click();
      await page.getByText("deployer").first().waitFor();
      expect(await page.content()).not.toContain(key);

      await page.goto(`${server.url}/dashboard/org_default/${server.env}/audit?action=apikeys:manage`);
      await page.getByText("keys.create").waitFor();
      await press(page, "Verify the chain");
      await page.getByText(/rows are what was written/).waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a user of the platform looks into a tenant, live, under a banner, and is at home again", async () => {
    const { api, rpc } = server;
    const key = await platformSessionOf(server);
    const headers = { "x-svc-org": "org_default" };
    const made = await api("/api/v1/tenants/provision", { key, headers, body: { org_name: "Acme" } });
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "~", session: key });
      await page.getByRole("heading", { name: "Tenants" }).waitFor();
      expect(await page.getByRole("link", { name: "Runs", exact: true }).count()).toBe(0);
      await page.getByRole("row", { name: /Acme/ }).getByRole("link", { name: "Look inside" }).click();
      await page.getByRole("alert").getByText("You act inside Acme").waitFor();
      await page.getByText("Live", { exact: true }).waitFor();
      await page.getByRole("link", { name: "Events", exact: true }).click();
      const tail = { about: "an event of the tenant in the tail" };
      const asTenant = { key: made.body.api_key.key };
      await until(async () => {
        const { body } = await rpc("SvcService", "Emit", { event: "acme.sold" }, asTenant);
        return page.locator(`[data-event="${body.eventId}"]`).isVisible();
      }, tail);
      await page.getByRole("link", { name: "Leave" }).click();
      await page.getByRole("heading", { name: "Tenants" }).waitFor();
      expect(await page.getByText("You act inside").count()).toBe(0);
      await page.getByRole("link", { name: "Capacity" }).click();
      await page.getByRole("heading", { name: "Capacity" }).waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven.operating)).toEqual([]);
  });
});
