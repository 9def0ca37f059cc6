import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { RunOnly } from "axe-core";
import type { Browser, Page } from "playwright-core";
import { breachesOf, standards } from "../support/axe.ts";
import { inChrome } from "../support/chrome.ts";
import { inTurn, isNight } from "../support/night.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { furnish, policyIn } from "./furnish.ts";
import { dataPaths, furnishData } from "./furnish-data.ts";
import { furnishWork, longName } from "./furnish-work.ts";
import { emit, functionWithWorker, platformSessionOf, sessionOf, stepOf, turnTo, visit } from "./visit.ts";

/** Where screenshots go when somebody wants to look: `DASHBOARD_SHOTS=/tmp/shots`. */
const shots = process.env.DASHBOARD_SHOTS;

const window = { width: 1_360, height: 860 };

/** The looks of one page, and what each is asked: the dark one differs from the light one in its colours alone. */
const allLooks: readonly {
  look: string;
  colorScheme: "light" | "dark";
  viewport: typeof window;
  only: RunOnly;
}[] = [
  { look: "light", colorScheme: "light", viewport: window, only: { type: "tag", values: standards } },
  { look: "dark", colorScheme: "dark", viewport: window, only: { type: "rule", values: ["color-contrast"] } },
  {
    ...{ look: "phone", colorScheme: "light", viewport: { width: 390, height: 844 } },
    only: { type: "tag", values: standards },
  },
];

/** By day every fifth page, in one look, in turn: each page has had all of them at night. */
const looksOf = inTurn(allLooks, 1);
const byDay = <Item>(pages: readonly Item[]): Item[] => pages.filter((_, at) => isNight || at % 5 === 0);

/** A browser that hangs costs what was seen of so many pages. */
const pagesABrowser = 12;

/** What is wrong at an address, by its name. */
async function breachesAt(page: Page, { name, url }: { name: string; url: string }): Promise<string[]> {
  const breaches: string[] = [];
  await page.setViewportSize(window);
  await page.emulateMedia({ colorScheme: "light" });
  await turnTo(page, url);
  await page.getByRole("heading", { level: 1 }).waitFor();
  for (const { look, colorScheme, viewport, only } of looksOf()) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(viewport);
    await page.evaluate(drawnAnew);
    if (shots !== undefined) await page.screenshot({ path: `${shots}/${name}-${look}.png` });
    const found = await breachesOf(page, only);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (overflow > 0) found.push(`${overflow} pixels wider than the window`);
    breaches.push(...found.map((breach) => `${name}, ${look}: ${breach}`));
  }
  return breaches;
}

/** Two frames: what answers to a new size or scheme has been laid out and drawn. */
const drawnAnew = () =>
  new Promise<void>((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn())));

/** What buttons say that change something. Words with … ask first; those of one's own sessions are anyone's. */
const isWrite = (name: string): boolean =>
  !/^End( all others)?…$/.test(name) &&
  (/…$/.test(name) ||
    /^(Activate|Append|Archive|Cancel|Close the breaker|Continue|Deliver|Emit|End|Invoke|Pause|Publish|Put|Rebuild|Resolve|Resume|Roll|Save|Send|Take away|Try again)\b/.test(
      name,
    ));

/** The buttons that change something, of all these pages. */
async function writesOn(page: Page, urls: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const url of urls) {
    await turnTo(page, url);
    await page.getByRole("heading", { level: 1 }).waitFor();
    // What a page could not read is read again by a button in its place.
    const buttons = page.locator("main button:not(.failure *)");
    const names = await buttons.evaluateAll((all) =>
      all.map((one) => one.getAttribute("aria-label") ?? one.textContent),
    );
    found.push(...names.filter(isWrite).map((name) => `${url.replace(/^.*?\/dashboard\//, "")}: ${name}`));
  }
  return found;
}

const groupsOf = <Item>(items: readonly Item[], size: number): Item[][] =>
  Array.from({ length: Math.ceil(items.length / size) }, (_, at) => items.slice(at * size, (at + 1) * size));

/** The links of the navigation, once they are there; on a phone they stand behind a button. */
async function navigationOf(page: Page) {
  const links = page.locator("nav[aria-label=Pages] a");
  await links.first().waitFor({ state: "attached" });
  return links;
}

/** The pages that stand in the navigation. */
async function offeredUrls(page: Page): Promise<string[]> {
  const links = await navigationOf(page);
  return links.evaluateAll((all) => all.map((one) => (one as HTMLAnchorElement).href));
}

describe("every page of the dashboard", () => {
  let server: TestServer;
  let session: string;
  let paths: { name: string; path: string }[];
  let platformSession: string;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
    session = await sessionOf(server, "admin");
    platformSession = await platformSessionOf(server);
    const worker = await functionWithWorker(server, "charge-order", "order.placed");
    const done = await emit(server, "order.placed", { order: 1, items: [{ sku: "a-1", count: 2 }] });
    const first = await worker.job();
    const steps = ["reserve", "charge", "ship"].map((name) => stepOf(first, name, { output: { name } }));
    await worker.report(first, { status: "completed", output: { shipped: true }, steps });
    const failed = await emit(server, "order.placed", { order: 2 });
    const second = await worker.job();
    const error = {
      message: "the card was declined",
      code: "DECLINED",
      stack: "Error\n  at charge",
      retryable: false,
    };
    await worker.report(second, {
      status: "failed",
      error,
      steps: [stepOf(second, "reserve", { output: 1 })],
      logs: [
        { level: "info", text: "order 2 was asked for", fields: { total: 17, items: ["a-1"] } },
        { level: "warn", text: "the bank is slow", step: "charge" },
        { level: "error", text: "the card was declined", step: "charge", fields: { code: "DECLINED" } },
      ],
      log_lost: 2,
    });
    await emit(server, "order.placed", { order: 3 });
    const body = { action: "resume", filter: { function_id: "nobody's" }, reason: "the bank is back" };
    const repair = (await server.api("/api/v1/repairs", { body })).body.id;
    const folds = { name: "orders", events: ["order.placed"] };
    await server.rpc("ProjectionService", "RegisterProjection", folds);
    await server.rpc("ProjectionService", "PollProjectionEvents", { name: "orders", limit: 1 });
    const state = { name: "orders", partitionKey: "ada", state: { orders: 3 }, lastEventSeq: "1" };
    await server.rpc("ProjectionService", "SaveProjectionState", state);
    // Before the quota of runs that are not over.
    const work = await furnishWork(server);
    await furnish(server);
    await furnishData(server);
    paths = [
      { name: "overview", path: "overview" },
      { name: "runs", path: "runs" },
      { name: "run", path: `runs/${done}?step=${encodeURIComponent(`${done}:charge:0`)}` },
      { name: "run-logs", path: `runs/${failed}?tab=logs` },
      { name: "run-attempts", path: `runs/${failed}?tab=attempts` },
      { name: "run-history", path: `runs/${failed}?tab=history` },
      {
        name: "run-failed",
        path: `runs/${work.failed}?step=${encodeURIComponent(`${work.failed}:print-label:0`)}`,
      },
      { name: "run-running", path: `runs/${work.running}?tab=audit` },
      { name: "run-long", path: `runs/${work.long}` },
      { name: "runs-none", path: "runs?function=nobody" },
      { name: "function-long", path: `functions/${longName}` },
      { name: "function-definition", path: "functions/ship-order?tab=definition" },
      { name: "no-such-run", path: "runs/run_none" },
      { name: "no-such-page", path: "nowhere" },
      { name: "run-causes", path: `runs/${done}?tab=causes` },
      { name: "functions", path: "functions" },
      { name: "function", path: "functions/charge-order" },
      { name: "versions", path: "functions/charge-order?tab=versions" },
      { name: "events", path: "events" },
      { name: "browse", path: "events?view=browse" },
      { name: "repairs", path: "repairs" },
      { name: "repair", path: `repairs/${repair}` },
      { name: "projections", path: "projections" },
      { name: "projection", path: "projections/orders?partition=ada" },
      { name: "workers", path: "workers" },
      { name: "serving", path: "functions/charge-order?tab=serving" },
      { name: "map", path: "map" },
      { name: "buckets", path: "kv" },
      { name: "bucket", path: "kv/sessions?key=users/ada" },
      { name: "configs", path: "config" },
      { name: "config", path: "config/checkout" },
      { name: "secrets", path: "secrets" },
      { name: "secret", path: "secrets/STRIPE_KEY" },
      { name: "tools", path: "tools" },
      { name: "tool", path: "tools/planner.plan" },
      { name: "dead-letters", path: "dead-letters" },
      { name: "alerts", path: "alerts" },
      { name: "quotas", path: "quotas" },
      { name: "usage", path: "usage?by=function" },
      { name: "schedules", path: "schedules" },
      { name: "issuers", path: "access?tab=issuers" },
      { name: "run-signals", path: `runs/${done}?tab=signals` },
      { name: "cluster", path: "cluster" },
      { name: "integrity", path: "integrity" },
      { name: "integrity-rows", path: "integrity?check=timers.overdue" },
      { name: "users", path: "access" },
      { name: "roles", path: "access?tab=roles" },
      { name: "keys", path: "access?tab=keys" },
      { name: "sessions", path: "access?tab=sessions" },
      { name: "policies", path: "policies" },
      { name: "policy", path: `policies/${await policyIn(server)}` },
      { name: "audit", path: "audit" },
      ...(await dataPaths(server)),
    ];
  }, 300_000);
  afterAll(() => server.stop());

  /** The session of a user of the platform who may look alone. */
  async function platformViewer(): Promise<string> {
    const user = { email: "looks@example.test", password: "correct horse battery staple" };
    const body = { ...user, name: "Looks", role_ids: ["role_platform_viewer"] };
    await server.api("/api/v1/platform/users", { key: platformSession, body });
    const login = await server.api("/api/v1/platform/auth/login", { body: user, key: null });
    return login.body.token;
  }

  /** The pages of the platform's navigation. */
  const platformUrls = async (): Promise<string[]> => {
    const urls = await inChrome(async (browser) => {
      const { page } = await visit(browser, server, { path: "~", session: platformSession });
      await page.getByRole("heading", { name: "Tenants" }).waitFor();
      return offeredUrls(page);
    });
    expect(urls.length).toBeGreaterThan(4);
    return urls;
  };

  test("is for everyone: light, dark and on a phone", async () => {
    const tenants = paths.map(({ name, path }) => ({
      ...{ name, session, url: `${server.url}/dashboard/org_default/${server.env}/${path}` },
    }));
    const ofPlatform = (await platformUrls()).map((url) => ({
      ...{ name: `platform-${url.replace(/^.*\//, "")}`, session: platformSession, url },
    }));
    const breaches: string[] = [];
    for (const pages of [...groupsOf(byDay(tenants), pagesABrowser), byDay(ofPlatform)])
      breaches.push(
        ...(await inChrome(async (browser) => {
          const found: string[] = [];
          const { page, complaints } = await visit(browser, server, {
            path: "~",
            session: pages[0]!.session,
          });
          await navigationOf(page);
          for (const one of pages) found.push(...(await breachesAt(page, one)));
          await page.context().close();
          return [...found, ...complaints];
        })),
      );
    expect(breaches).toEqual([]);
  }, 900_000);

  test.if(isNight)(
    "offers a viewer nothing that writes, at a tenant and at the platform",
    async () => {
      const viewer = await sessionOf(server, "viewer");
      const platform = await platformViewer();
      const inTenant = paths.map(({ path }) => `${server.url}/dashboard/org_default/${server.env}/${path}`);
      const looks = [
        { path: "overview", reader: viewer, writer: session, urls: inTenant, writtenMin: 60 },
        { path: "~", reader: platform, writer: platformSession, urls: await platformUrls(), writtenMin: 3 },
      ];
      for (const { path, reader, writer, urls, writtenMin } of looks) {
        const offered = async (session: string): Promise<string[]> => {
          const writes: string[] = [];
          for (const some of groupsOf(urls, pagesABrowser))
            writes.push(
              ...(await inChrome(async (browser) => {
                const { page } = await visit(browser, server, { path, session });
                await navigationOf(page);
                const found = await writesOn(page, some);
                await page.context().close();
                return found;
              })),
            );
          return writes;
        };
        expect(await offered(reader)).toEqual([]);
        // The same pages offer an admin what this test looks for.
        expect((await offered(writer)).length).toBeGreaterThan(writtenMin);
      }
    },
    900_000,
  );

  test("a page with nothing to show says what makes something, and one that cannot be read says why", async () => {
    const empty = await startTestServer({ engine: "libsql" });
    try {
      const session = await sessionOf(empty, "admin");
      const opened = (browser: Browser) =>
        visit(browser, empty, { path: "overview", session, colorScheme: "light" });
      const nameOf = (url: string) => url.replace(/^.*\//, "");
      const urls = await inChrome(async (browser) => {
        const wordless: string[] = [];
        const { page } = await opened(browser);
        const urls = byDay(await offeredUrls(page));
        for (const url of urls) {
          await turnTo(page, url);
          await page.getByRole("heading", { level: 1 }).waitFor();
          if (shots !== undefined) await page.screenshot({ path: `${shots}/${nameOf(url)}-empty.png` });
          const titles = page.locator(".page > .empty:not(:has(.empty-title ~ *))");
          for (const title of await titles.allTextContents()) wordless.push(`${nameOf(url)}: ${title}`);
        }
        expect(wordless).toEqual([]);
        await page.context().close();
        return urls;
      });
      await inChrome(async (browser) => {
        const { page } = await opened(browser);
        await navigationOf(page);
        await page.route(/\/api\/v1\/|\/svc\.v1\./, (route) =>
          /auth|environments$|capabilities/.test(route.request().url())
            ? route.continue()
            : route.fulfill({
                status: 503,
                json: { error: "the database does not answer", code: "unavailable" },
              }),
        );
        const silent: string[] = [];
        // What is open already was read; the tail of events is told by frames.
        for (const url of [...urls.slice(1), urls[0]!].filter((one) => nameOf(one) !== "events")) {
          await turnTo(page, url);
          if (shots !== undefined) await page.screenshot({ path: `${shots}/${nameOf(url)}-failed.png` });
          const main = page.getByRole("main");
          await main
            .getByText("the database does not answer")
            .first()
            .waitFor()
            .catch(async () => silent.push(`${nameOf(url)}: ${await main.textContent()}`));
        }
        expect(silent).toEqual([]);
        await page.context().close();
      });
    } finally {
      await empty.stop();
    }
  }, 900_000);

  test("the sign-in page is for everyone, too", async () => {
    await inChrome(async (browser) => {
      const { page } = await visit(browser, server, { path: "overview" });
      await page.getByRole("button", { name: "Sign in" }).waitFor();
      if (shots !== undefined) await page.screenshot({ path: `${shots}/sign-in.png` });
      expect(await breachesOf(page)).toEqual([]);
      await page.context().close();
    });
  });
});
