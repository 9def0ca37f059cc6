import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Page } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import { type FurnishedOrg, furnishOrg } from "../support/furnished-org.ts";
import { idsOf, nobodys } from "../support/intruder.ts";
import { inTurn, isNight } from "../support/night.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { sessionOf, visit } from "./visit.ts";

const sources = join(import.meta.dir, "../../src/dashboard");

interface Listed {
  path: string;
  /** Whether one thing of it has an address of its own. */
  hasOne: boolean;
  /** What it reads from the address beside the path. */
  filters: readonly string[];
}

const filtersIn = (text: string): string[] =>
  [...text.matchAll(/query\.get\("(\w+)"\)|\btext\("(\w+)"\)/g)].map(([, one, other]) => (one ?? other)!);

/** The texts of a page's own folder, or of its file where it has none. */
function textsOf(file: string): string {
  const folder = dirname(file);
  const files =
    folder === "pages" ? [file] : readdirSync(join(sources, folder)).map((name) => join(folder, name));
  return files.map((name) => readFileSync(join(sources, name), "utf8")).join("\n");
}

/** Every page of an org, as the table of pages has them. */
function listedPages(): Listed[] {
  const [imports = "", table = ""] = readFileSync(join(sources, "pages.tsx"), "utf8").split(
    "export const pages:",
  );
  const fileOf = (component: string): string =>
    new RegExp(`import \\{[^}]*\\b${component}\\b[^}]*\\} from "\\./([^"]+)"`).exec(imports)?.[1] ?? "";
  return table.split(/(?=path: ")/).flatMap((text) => {
    const [, path] = /^path: "([\w-]+)"/.exec(text) ?? [];
    if (path === undefined) return [];
    const [, component = ""] = /shows: (\w+)/.exec(text) ?? [];
    const filters = [...new Set(filtersIn(textsOf(fileOf(component))))];
    return [{ path, hasOne: /\bone: \{/.test(text), filters }];
  });
}

/** Kinds of ids that each filter, and by day each thing, is tried with, in turn. */
const kindsOfFilter = 2;

const tabsOfAll = 4;

/** Of a pair that differs: on a busy machine a page may have been read before it began to read itself. */
const looksMax = 5;

/** What the page shows at each of these addresses, once it has read everything, for which it has so many frames to begin. */
const shownAt = (page: Page, hrefs: readonly string[], framesToBegin = 3): Promise<string[]> =>
  page.evaluate(
    async ([all, frames]) => {
      const main = document.querySelector("main")!;
      const texts: string[] = [];
      const isReading = () =>
        main.getAttribute("aria-busy") === "true" ||
        (main.textContent.includes("Reading…") && !main.querySelector("[role=alert]"));
      for (const href of all) {
        history.pushState(null, "", href);
        dispatchEvent(new PopStateEvent("popstate"));
        const drawn = () => new Promise(requestAnimationFrame);
        do for (let frame = 0; frame < frames; frame++) await drawn();
        while (isReading());
        const typed = [...main.querySelectorAll<HTMLInputElement>("input, textarea")].map(
          ({ value }) => value,
        );
        texts.push([main.textContent, ...typed].join("\n"));
      }
      return texts;
    },
    [hrefs as string[], framesToBegin] as const,
  );

/** The same by several tabs: most of the time one waits for its next frame. */
async function shownBy(tabs: readonly Page[], hrefs: readonly string[]): Promise<string[]> {
  const size = Math.ceil(hrefs.length / tabs.length);
  const parts = tabs.map((tab, at) => shownAt(tab, hrefs.slice(at * size, (at + 1) * size)));
  return (await Promise.all(parts)).flat();
}

/** Without what was asked for, and without times and counts. */
const comparable = (text: string, sent: string): string =>
  text
    .replaceAll(sent, "SENT")
    .replaceAll(/[0-9a-f]{6,}/g, "ID")
    .replaceAll(/\d+/g, "N");

const isSame = (id: string, { theirs, none }: { theirs: string; none: string }): boolean =>
  comparable(theirs, id) === comparable(none, nobodys(id));

/** The pages read what the API answers, and operations/intruder asks that. */
const enginesAsked = engines.filter((engine) => isNight || engine === "libsql");

describe.each(enginesAsked)("an intruder with the dashboard's addresses on %s", (engine) => {
  let server: TestServer;
  let session: string;
  let victim: FurnishedOrg;
  let ids: Map<string, string>;
  const own = () => `/dashboard/org_default/${server.env}`;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    session = await sessionOf(server, "admin");
    victim = await furnishOrg(server, "victim");
    ids = await idsOf(server, victim.orgId, victim.environmentId);
    ids.set("org", victim.orgId);
    ids.set("env", victim.environmentId);
    ids.set("proj", victim.projectId);
  }, 120_000);
  afterAll(() => server.stop());

  const secretsBut = (sent: string) => [victim.marker, ...ids.values()].filter((one) => !sent.includes(one));

  test("finds at no page's address anything of another org", async () => {
    const pages = listedPages();
    expect(pages.length).toBeGreaterThan(20);
    expect(pages.filter(({ hasOne }) => hasOne).length).toBeGreaterThan(15);
    expect(pages.flatMap(({ filters }) => filters).length).toBeGreaterThan(20);
    expect(ids.size).toBeGreaterThan(10);
    const all = [...ids.values()];
    const things = pages.flatMap(({ path, hasOne }) => (hasOne ? [path] : []));
    const some = inTurn(all, kindsOfFilter);
    const byThing = things.flatMap((path) => some().map((id) => ({ href: `${own()}/${path}/${id}`, id })));
    let turn = 0;
    const byFilter = pages.flatMap(({ path, filters }) =>
      filters.flatMap((filter) =>
        Array.from({ length: kindsOfFilter }, () => {
          const id = all[turn++ % all.length]!;
          return { href: `${own()}/${path}?${filter}=${id}`, id };
        }),
      ),
    );
    const nobodysHref = ({ href, id }: { href: string; id: string }) => href.replaceAll(id, nobodys(id));
    await inChrome(
      async (browser) => {
        const visits = await Promise.all(
          Array.from({ length: tabsOfAll }, () => visit(browser, server, { path: "runs", session })),
        );
        const tabs = visits.map(({ page }) => page);
        for (const page of tabs) await page.getByText("Live", { exact: true }).waitFor();
        for (const asked of [byThing, byFilter]) {
          const theirs = await shownBy(
            tabs,
            asked.map(({ href }) => href),
          );
          const none = await shownBy(tabs, asked.map(nobodysHref));
          for (const [at, { href, id }] of asked.entries()) {
            for (const secret of secretsBut(id)) expect(theirs[at], href).not.toContain(secret);
            const pair = { theirs: theirs[at]!, none: none[at]! };
            for (let looks = 1; looks < looksMax && !isSame(id, pair); looks++) {
              const [again, noneAgain] = await shownAt(
                tabs[0]!,
                [href, nobodysHref({ href, id })],
                10 * looks,
              );
              Object.assign(pair, { theirs: again, none: noneAgain });
              for (const secret of secretsBut(id)) expect(again, href).not.toContain(secret);
            }
            expect(comparable(pair.theirs, id), href).toBe(comparable(pair.none, nobodys(id)));
          }
        }
        for (const { page, complaints } of visits) {
          expect(complaints).toEqual([]);
          await page.context().close();
        }
      },
      { patienceMs: 240_000 },
    );
  }, 900_000);

  test("is told at another org's or environment's address that it is not theirs", async () => {
    const places = [
      `/dashboard/${victim.orgId}/${victim.environmentId}`,
      `/dashboard/${victim.orgId}/${server.env}`,
      `/dashboard/org_default/${victim.environmentId}`,
    ];
    const hrefs = listedPages().flatMap(({ path, hasOne }) =>
      places.flatMap((place) => [`${place}/${path}`, ...(hasOne ? [`${place}/${path}/same`] : [])]),
    );
    await inChrome(async (browser) => {
      const { page } = await visit(browser, server, { path: "runs", session });
      await page.getByText("Live", { exact: true }).waitFor();
      for (const [at, text] of (await shownAt(page, hrefs)).entries())
        expect(text, hrefs[at]!).toMatch(
          /^(This is no address of your organization|There is no such environment here)/,
        );
      await page.context().close();
    });
  }, 600_000);
});

describe("a page of another site", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
  });
  afterAll(() => server.stop());

  test("gets no frame, no window and no call of the dashboard of somebody who is signed in", async () => {
    const session = await sessionOf(server, "admin");
    const evil = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: () => new Response("<!doctype html><body></body>", { headers: { "content-type": "text/html" } }),
    });
    const framed = [`/dashboard/org_default/${server.env}/runs`, "/dashboard/", "/", "/dashboard/sign-in"];
    try {
      await inChrome(async (browser) => {
        const { page } = await visit(browser, server, { path: "runs", session });
        await page.getByText("Live", { exact: true }).waitFor();
        const other = await page.context().newPage();
        // By another name of this machine it is another site, and by its port another origin.
        for (const host of ["localhost", "127.0.0.1"]) {
          await other.goto(`http://${host}:${evil.port}/`);
          const frames = await other.evaluate(
            async ([url, paths]) =>
              Promise.all(
                (paths as string[]).map(async (path) => {
                  const frame = document.createElement("iframe");
                  frame.src = `${url}${path}`;
                  const loaded = new Promise((over) => frame.addEventListener("load", over));
                  document.body.append(frame);
                  await loaded;
                }),
              ),
            [server.url, framed] as const,
          );
          expect(frames).toHaveLength(framed.length);
          const inside = other.frames().filter((frame) => frame !== other.mainFrame());
          expect(inside).toHaveLength(framed.length);
          await until(() => inside.every((frame) => frame.url() !== ""), {
            about: "the frames to be refused",
          });
          for (const frame of inside) {
            // What a browser shows in place of a page that may not be framed.
            expect(frame.url()).toBe("chrome-error://chromewebdata/");
            expect(await frame.locator("#app").count()).toBe(0);
          }
          const popup = other.waitForEvent("popup");
          await other.evaluate((url) => {
            Object.assign(window, { opened: window.open(url) });
          }, `${server.url}${framed[0]}`);
          await (await popup).getByText("Live", { exact: true }).waitFor();
          const seen = await other.evaluate(() => {
            const { opened } = window as unknown as { opened: Window };
            return { isReached: !opened.closed, length: opened.length };
          });
          expect(seen).toEqual({ isReached: false, length: 0 });
        }
        await page.context().close();
      });
    } finally {
      await evil.stop(true);
    }
    for (const site of ["cross-site", "same-site"])
      for (const path of ["/svc.v1.SvcService/CancelRun", "/api/v1/secrets", "/api/v1/apikeys"]) {
        const headers = {
          cookie: `svc_dashboard_token=${session}`,
          "sec-fetch-site": site,
          "content-type": "application/json",
          origin: "http://evil.example",
        };
        const { status } = await fetch(`${server.url}${path}`, { method: "POST", headers, body: "{}" });
        expect([401, 403], `${site} ${path}`).toContain(status);
      }
  }, 600_000);
});
