import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import { benign, isHeldOrLogin, walk } from "../support/hostile-names.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { furnish, policyIn } from "./furnish.ts";
import { dataPaths, furnishData } from "./furnish-data.ts";
import { functionWithWorker, sessionOf, stepOf, turnTo, visit } from "./visit.ts";

const script = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>';
const hostile = [
  script,
  "javascript:window.broken=1//",
  "\u202egnp.exe\u202c",
  "\u0000\u0007\u001b[31m",
  "{{7*7}}",
];
const mebibyte = 1_024 * 1_024;
/** Of each list so many are opened. */
const thingsOfPage = 2;

const deep = (levels: number): unknown => (levels === 0 ? script : { [script]: deep(levels - 1) });
const manyKeys = Object.fromEntries(
  Array.from({ length: 10_000 }, (_, index) => [`key ${index} ${script}`, index]),
);

/** The page draws again after a click: it is alive, and nothing of the data has run. */
async function isAlive(page: Page): Promise<void> {
  await page.getByRole("button", { name: /^Theme/ }).click();
  expect(await page.evaluate(() => "broken" in window)).toBe(false);
  const foreign = await page.evaluate(() => ({
    elements: document.querySelectorAll("img, iframe, object, embed, script:not([src^='/dashboard/'])")
      .length,
    links: [...document.links].filter(({ protocol }) => !/^https?:$/.test(protocol)).length,
  }));
  expect(foreign).toEqual({ elements: 0, links: 0 });
}

describe("hostile content in the dashboard", () => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
    session = await sessionOf(server, "admin");
  });
  afterAll(() => server.stop());

  test("names, data, outputs and errors are text, whatever they hold", async () => {
    const id = "x<img/src=x/onerror=window.broken=1//javascript:";
    const worker = await functionWithWorker(server, id, "hostile.asked", {
      name: script,
      description: script,
    });
    const data = { hostile, [script]: script, deep: deep(28), long: "a".repeat(mebibyte), many: manyKeys };
    const { body } = await server.rpc("SvcService", "Emit", {
      event: "hostile.asked",
      data,
      metadata: { [script]: script },
    });
    const job = await worker.job();
    await worker.report(job, {
      status: "failed",
      error: {
        message: `${script}${"\u202e".repeat(50)}`,
        code: script,
        stack: `at ${script}\n`.repeat(500),
        retryable: false,
      },
      steps: hostile.map((name, index) => ({ ...stepOf(job, `step-${index}`, { output: data }), name })),
      logs: hostile.map((text) => ({ level: "info", text, step: text, fields: { [text]: text } })),
    });
    const run = body.runIds[0];
    await furnish(server, script);
    await furnishData(server, script);
    await server.api("/api/v1/roles", { body: { name: script } });
    const policy = await policyIn(server, script);
    const paths = [
      ...(await dataPaths(server)).map(({ path }) => path),
      `runs/${run}`,
      `runs/${run}?tab=logs`,
      `runs/${run}?tab=attempts`,
      `runs/${run}?tab=history`,
      `runs/${run}?tab=causes`,
      `runs/${run}?tab=audit`,
      `runs/${run}?step=${encodeURIComponent(`${run}:step-0:0`)}`,
      `runs?q=${encodeURIComponent(script)}`,
      `runs?function=${encodeURIComponent(id)}&status=failed`,
      "events?view=browse",
      `events?pattern=${encodeURIComponent(script)}&filter=${encodeURIComponent(script)}`,
      `events/${body.eventId}`,
      "functions",
      `functions/${encodeURIComponent(id)}?tab=definition`,
      "overview",
      "workers",
      "map",
      "kv/sessions?key=users/ada",
      `kv/sessions?q=${encodeURIComponent(script)}&key=${encodeURIComponent(script)}`,
      "config/checkout",
      "secrets/STRIPE_KEY",
      "tools/planner.plan",
      `dead-letters?of=${encodeURIComponent(script)}`,
      "access?tab=roles",
      `policies/${policy}`,
      "audit",
      `${encodeURIComponent(script)}/${encodeURIComponent("../../..")}`,
    ];
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "overview", session });
      await page.getByText("Live", { exact: true }).waitFor();
      for (const path of paths) {
        await turnTo(page, `${server.url}/dashboard/org_default/${server.env}/${path}`);
        await isAlive(page);
      }
      await page.goto(`${server.url}/dashboard/org_default/${server.env}/runs/${run}`);
      await page.getByRole("button", { name: /^Show all .* of the input/ }).click();
      await page
        .getByRole("button", { name: /^many:/ })
        .first()
        .click();
      await page.getByRole("button", { name: "… 9,900 more" }).first().click();
      await page
        .getByRole("button", { name: /more characters/ })
        .first()
        .click();
      await isAlive(page);
      expect(await page.getByText("\\u{202e}").first().isVisible()).toBe(true);
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  }, 900_000);

  test("every text that a tenant can write is a text on every page", async () => {
    await server.rpc("SvcService", "RegisterFunction", {
      id: "benign",
      triggers: [{ event: "benign.event" }],
    });
    const names = benign();
    const own: Record<string, string> = { "orgs.update": "org_default", "environments.update": server.env };
    const sent = await walk({
      server,
      texts: { probe: `">${script}` },
      sample: (field, operation) => (field === "id" && own[operation]) || names(field, operation),
      headers: () => ({ authorization: `Bearer ${server.adminKey}` }),
      skips: (way) => isHeldOrLogin(way) || /^\/api\/v1\/(platform|tenants)\b/.test(way.path),
    });
    const taken = sent.filter(({ status }) => status < 300);
    expect(new Set(taken.map(({ way, field }) => `${way} ${field}`)).size).toBeGreaterThan(30);

    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "overview", session });
      await page.getByText("Live", { exact: true }).waitFor();
      const linksIn = (place: string) =>
        page
          .locator(`${place} a[href^="/dashboard/"]`)
          .evaluateAll((all) => [
            ...new Set(all.map((one) => (one as HTMLAnchorElement).getAttribute("href")!)),
          ]);
      const wanted = await linksIn("nav[aria-label=Pages]");
      expect(wanted.length).toBeGreaterThan(20);
      const known = new Set(wanted);
      const ofPage = new Map<string, number>();
      const showing = new Set<string>();
      for (let next = wanted.shift(); next !== undefined; next = wanted.shift()) {
        await turnTo(page, next);
        const [isBroken, isShown] = await page.evaluate(
          (text) => ["broken" in window, document.body.textContent.includes(text)],
          '"><img src=x',
        );
        expect(isBroken, next).toBe(false);
        if (isShown) showing.add(next);
        const tabs = new Set(await linksIn("main .tabs"));
        for (const href of await linksIn("main")) {
          // One thing of a page stands for the others: the newest, which most lists have first.
          const [, , , , name, ...rest] = href.replace(/\?.*/, "").split("/");
          const kind = tabs.has(href) ? href : `${name} ${rest.length}`;
          const seen = ofPage.get(kind) ?? 0;
          if (known.has(href) || seen >= thingsOfPage) continue;
          ofPage.set(kind, seen + 1);
          known.add(href);
          wanted.push(href);
        }
      }
      await isAlive(page);
      expect(showing.size).toBeGreaterThan(10);
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  }, 900_000);

  test("ids of others in the address are told as ids that nobody has", async () => {
    await inChrome(async (browser) => {
      const { page } = await visit(browser, server, { path: "runs/run_00000000000000000000000000", session });
      await page.getByText("There is no such run here").waitFor();
      await page.goto(`${server.url}/dashboard/org_other/env_other/runs`);
      await page.getByText("This is no address of your organization").waitFor();
      await page.goto(`${server.url}/dashboard/org_default/env_other/runs`);
      await page.getByText("There is no such environment here").waitFor();
      await page.context().close();
    });
  });
});
