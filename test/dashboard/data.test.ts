import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { inChrome } from "../support/chrome.ts";
import { joinGroup } from "../support/group-member.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { driven } from "./driven.ts";
import { makeSource, sendToSource, signed } from "./furnish-data.ts";
import { sessionOf, visit } from "./visit.ts";
import { notGranted } from "./writes.ts";

describe("data in the dashboard", () => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
    session = await sessionOf(server, "developer");
  }, 300_000);
  afterAll(() => server.stop());

  test("a stream is begun, followed and looked at as it was", async () => {
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "streams", session });
      await page.getByRole("button", { name: "Append…" }).click();
      await page.getByLabel("Entity", { exact: true }).fill("cart-1");
      await page.getByLabel("Type", { exact: true }).fill("cart");
      await page.getByLabel("Event", { exact: true }).fill("cart.opened");
      await page.getByLabel("Data (JSON)").fill('{"by": "ada", "sum": 1}');
      await page.getByRole("button", { name: "Append", exact: true }).click();
      await page.getByRole("heading", { name: "cart-1" }).waitFor();
      const second = { entityId: "cart-1", entityType: "cart", eventName: "cart.filled", data: { sum: 2 } };
      await server.rpc("EntityStreamService", "AppendEvent", { ...second, expectedVersion: "1" });
      await page.locator('[data-version="2"]').waitFor();
      await page.getByRole("heading", { name: "Fields at version 2" }).waitFor();
      const fields = page.locator(".columns > div").last();
      await fields.getByText("sum: 2").waitFor();
      await page.getByLabel("Version", { exact: true }).fill("1");
      await fields.getByText("sum: 1").waitFor();
      expect(new URL(page.url()).searchParams.get("at")).toBe("1");

      await page.getByRole("button", { name: "Store a snapshot…" }).click();
      await page.getByRole("button", { name: "Store", exact: true }).click();
      await page.getByText("State at version 1").waitFor();
      await page.getByRole("button", { name: "Back to now" }).click();
      await fields.getByText("sum: 2").waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a query is completed, refused in its place, answered, drawn and taken along", async () => {
    for (const name of ["sql.a", "sql.a", "sql.b"]) await server.rpc("SvcService", "Emit", { event: name });
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "sql", session });
      const query = page.getByRole("textbox", { name: "Query" });
      await page.locator(".cm-editor").waitFor();
      await page.getByRole("button", { name: "events", exact: true }).click();
      await page.getByText("entity_version", { exact: true }).waitFor();
      await query.click();
      await page.keyboard.type("SELECT name, count(*) AS many FORM events");
      await page.keyboard.press("Control+Enter");
      await page
        .getByRole("alert")
        .getByText(/line 1, column \d+/)
        .waitFor();
      expect(await page.locator(".cm-lintRange-error").textContent()).toBe("FORM");
      // Where a word is typed, letters are text and no keys of the dashboard.
      expect(new URL(page.url()).pathname).toEndWith("/sql");
      await page.keyboard.press("Control+a");
      await page.keyboard.type("SELECT name, count(*) AS many FROM eve");
      await page.locator(".cm-tooltip-autocomplete").getByText("events", { exact: true }).waitFor();
      // The editor takes no completion in the first 75 ms that it shows one: who types fast means a new line.
      await page.waitForTimeout(600);
      await page.keyboard.press("Enter");
      await page.keyboard.type(" WHERE name IN ('sql.a', 'sql.b') GROUP BY name ORDER BY name");
      await page.getByRole("button", { name: "Run", exact: true }).click();
      const answer = page.getByRole("region", { name: "Answer" });
      await answer.getByText(/^2 rows in/).waitFor();
      expect(await answer.locator("tbody tr").allTextContents()).toEqual(["sql.a2", "sql.b1"]);
      const file = page.waitForEvent("download");
      await answer.getByRole("button", { name: "CSV" }).click();
      expect(await Bun.file(await (await file).path()).text()).toBe("name,many\r\nsql.a,2\r\nsql.b,1\r\n");
      await answer.getByRole("button", { name: "Chart" }).click();
      await answer.getByLabel("Bars of").waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("messages are published and seen, and what a group holds is given up", async () => {
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "topics", session });
      await page.getByRole("button", { name: "Publish…" }).click();
      await page.getByLabel("Topic", { exact: true }).fill("prices");
      await page.getByLabel("Data (JSON)").fill('{"sku": "a-1"}');
      await page.getByRole("button", { name: "Publish", exact: true }).click();
      await page.getByText('{"sku":"a-1"}').waitFor();
      await server.rpc("PubSubService", "Publish", { topic: "prices", data: { sku: "b-2" } });
      await page.getByText('{"sku":"b-2"}').waitFor();

      await page.goto(`${server.url}/dashboard/org_default/${server.env}/groups`);
      await page.getByRole("button", { name: "Create…" }).click();
      await page.getByLabel("Name").fill("readers");
      await page.getByLabel("Pattern").fill("topic:prices");
      await page.getByRole("button", { name: "Create", exact: true }).click();
      await page.getByText("None is connected").waitFor();
      await page.getByRole("button", { name: "Change…" }).click();
      await page.getByLabel("Redeliveries at most").fill("7");
      await page.getByRole("button", { name: "Change", exact: true }).click();
      await page.getByText("7 at most").waitFor();
      const member = joinGroup(
        { url: server.url, key: server.adminKey },
        { groupName: "readers", consumerId: "ada" },
      );
      const asked = { topic: "prices", data: { sku: "c-3" } };
      const { body } = await server.rpc("PubSubService", "Publish", asked);
      await member.wait(1);
      await page.reload();
      await page.getByRole("listitem").getByText("ada").waitFor();
      const row = page.getByRole("row", { name: new RegExp(body.eventId) });
      await row.getByText("ada", { exact: true }).waitFor();
      await row.getByRole("button", { name: "Give up" }).click();
      await page.getByText("Nothing is held").waitFor();
      await member.leave();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a schema gets a second version, and data goes from one to the other", async () => {
    const first = { type: "object", required: ["name"], properties: { name: { type: "string" } } };
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "schemas", session });
      await page.getByRole("button", { name: "Register…" }).click();
      await page.getByLabel("Event", { exact: true }).fill("member.came");
      await page.getByLabel("JSON Schema").fill("{ no json");
      await page.getByRole("button", { name: "Register", exact: true }).click();
      await page.getByText("The schema is not JSON").waitFor();
      await page.getByLabel("JSON Schema").fill(JSON.stringify(first));
      await page.getByRole("button", { name: "Register", exact: true }).click();
      await page.getByRole("heading", { name: "member.came" }).waitFor();
      await page.getByText("none refused").waitFor();
      await page.getByRole("button", { name: "Register the next version…" }).click();
      const second = {
        ...{ type: "object", required: ["label"], properties: { label: { type: "string" } } },
        "x-upcast": [{ op: "rename", path: "/name", to: "label" }],
      };
      await page.getByLabel("JSON Schema").fill(JSON.stringify(second));
      await page.getByRole("button", { name: "Register", exact: true }).click();
      await page.getByText("Version 2").first().waitFor();
      await page.getByLabel("Data (JSON)").fill('{"name": "Zoë"}');
      await page.getByRole("button", { name: "Try", exact: true }).click();
      await page.getByRole("status").getByText('"label": "Zoë"').waitFor();

      await page.goto(`${server.url}/dashboard/org_default/${server.env}/events`);
      await page.getByRole("button", { name: "Emit…" }).click();
      await page.getByLabel("Name", { exact: true }).fill("member.came");
      await page.getByLabel("label").fill("Ada");
      await page.getByRole("button", { name: "Emit", exact: true }).click();
      await page.getByRole("heading", { name: "member.came" }).waitFor();
      await page.getByText('label: "Ada"').waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("as much of the past comes first as is asked for", async () => {
    const events = Array.from({ length: 100 }, (_, at) => ({ event: "past.came", data: { at } }));
    for (let batch = 0; batch < 2; batch++) await server.rpc("SvcService", "TriggerBatch", { events });
    await inChrome(async (browser) => {
      const path = "events?pattern=past.*";
      const { page, complaints } = await visit(browser, server, { path, session });
      await page.getByText("100 shown, newest first").waitFor();
      await page.getByLabel("Newest").selectOption("1000");
      await page.getByText("200 shown, newest first").waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a filter is completed from what came, and what is wrong with it stands beside it", async () => {
    await server.rpc("SvcService", "Emit", { event: "filtered.came", data: { customer: { age: 41 } } });
    await inChrome(async (browser) => {
      const { page } = await visit(browser, server, { path: "events?pattern=filtered.*", session });
      await page.getByText("filtered.came").waitFor();
      const filter = page.getByLabel("Filter in CEL");
      // Who types on before the next frame is drawn types behind what was completed, and goes on there.
      await page.evaluate("undrawn = []; requestAnimationFrame = (draw) => undrawn.push(draw)");
      await filter.pressSequentially("data.customer.a");
      await page.getByRole("option", { name: "data.customer.age" }).waitFor();
      await filter.press("ArrowDown");
      await filter.press("Enter");
      await until(async () => (await filter.inputValue()) === "data.customer.age", {
        about: "the completion",
      });
      await filter.pressSequentially(" >");
      await filter.press("Enter");
      await page.getByRole("alert").waitFor();
      await page.evaluate("for (const draw of undrawn.splice(0)) draw(0)");
      expect(await filter.getAttribute("aria-invalid")).toBe("true");
      expect(await page.getByLabel("Pattern of names").getAttribute("aria-invalid")).toBe("false");
      await filter.pressSequentially(" 40");
      expect(await filter.inputValue()).toBe("data.customer.age > 40");
      await filter.press("Enter");
      await page.getByText("filtered.came").waitFor();
      await page.context().close();
    });
  });

  test("a delivery that no signature fits says so, and why is found by trying", async () => {
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "webhooks-in", session });
      await page.getByRole("button", { name: "Add a source…" }).click();
      await page.getByLabel("Prefix of its events").fill("shop");
      await page.getByLabel("Secret").fill("what both know");
      await page.getByRole("button", { name: "Add", exact: true }).click();
      await page.getByText(/webhooks\/whs_\w+\?token=ifwh_/).waitFor();
      await page.getByRole("button", { name: "I have kept it" }).click();
      await page.getByText("Nothing was sent yet").waitFor();

      const source = await makeSource(server, "till", "what both know");
      await page.goto(`${server.url}/dashboard/org_default/${server.env}/webhooks-in/${source.id}`);
      const body = JSON.stringify({ amount: 3 });
      await sendToSource(server, source, { body, signature: signed("something else", body) });
      await page.getByRole("link", { name: /no signature fits/ }).click();
      const panel = page.getByRole("complementary", { name: "Delivery" });
      await panel.getByText("fits no secret").waitFor();
      await panel.getByRole("button", { name: "Try its signature" }).click();
      await panel.getByLabel("Secret").fill("something else");
      await panel.getByRole("button", { name: "Try", exact: true }).click();
      await panel.getByText(signed("something else", body)).first().waitFor();
      await sendToSource(server, source, { body, signature: signed("what both know", body) });
      await page.getByRole("link", { name: "till.paid" }).click();
      await panel.getByRole("button", { name: "Deliver again" }).click();
      await page.getByText("again", { exact: true }).waitFor();
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("an endpoint is added, held and let go; a viewer is offered none of it", async () => {
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "webhooks-out", session });
      await page.getByRole("button", { name: "Add an endpoint…" }).click();
      await page.getByLabel("URL").fill("https://ledger.example.test/events");
      await page.getByLabel("Pattern").fill("events:ledger.*");
      await page.getByRole("button", { name: "Add", exact: true }).click();
      await page.getByText(/^whsec_/).waitFor();
      await page.getByRole("button", { name: "I have kept it" }).click();
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByRole("heading", { level: 1 }).getByText("Paused").waitFor();
      await page.getByRole("button", { name: "Continue" }).click();
      await page.getByRole("heading", { level: 1 }).getByText("Active").waitFor();
      expect(complaints).toEqual([]);
      const path = new URL(page.url()).pathname;
      await page.context().close();

      const viewer = await sessionOf(server, "viewer");
      const looked = await visit(browser, server, { path: "groups", session: viewer });
      for (const shown of [
        "groups",
        "streams",
        "topics",
        "schemas",
        "webhooks-in",
        path.split("/").slice(4).join("/"),
      ]) {
        await looked.page.goto(`${server.url}/dashboard/org_default/${server.env}/${shown}`);
        await looked.page.locator("main[aria-busy=false]").waitFor();
        const names = await looked.page.getByRole("main").getByRole("button").allTextContents();
        expect(names.filter((name) => name.endsWith("…"))).toEqual([]);
      }
      await looked.page.context().close();
    });
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven.data)).toEqual([]);
  });
});
