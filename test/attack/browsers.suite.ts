import type { Browser, BrowserContext } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import { type EngineName, startTestServer, type TestServer } from "../support/server.ts";
import { attackFromPage, reading, type Target, type Tried, writing } from "./browsers-pages.ts";
import type { AttackOptions, AttackResult, AttackSuite } from "./suite.ts";

interface Place {
  name: string;
  host: string;
  /** Another program of the person's own machine, which a --dev server answers. */
  isLoopback?: boolean;
  isLongOnly?: boolean;
}

/** Names under which pages of other sites reach the person's browser; each is another origin than the server's. */
const places: readonly Place[] = [
  { name: "another port", host: "127.0.0.1", isLoopback: true },
  { name: "a sibling name", host: "localhost", isLoopback: true },
  { name: "a subdomain", host: "evil.localhost", isLongOnly: true },
  { name: "another site", host: "evil.example" },
];

/** Links that are followed one after the other: what takes jobs, and what reads. */
const followed = ["/api/v1/workers/browsers/jobs", "/api/v1/apikeys"];

const marker = "told-to-nobody-else";

async function furnish(server: TestServer): Promise<string> {
  const login = { email: "person@example.test", password: "correct horse battery" };
  await server.api("/api/v1/users", { body: { ...login, roles: ["admin"] } });
  await server.rpc("SvcService", "RegisterFunction", { id: "browsed", triggers: [] });
  await server.api("/api/v1/secrets", { body: { name: "kept", value: marker } });
  await server.rpc("SvcService", "Emit", { event: marker });
  await server.rpc("SvcService", "InvokeFunction", { functionId: "browsed" });
  const answer = await server.api("/api/v1/auth/login", { key: null, body: login });
  return /svc_dashboard_token=([^;]+)/.exec(answer.headers.get("set-cookie") ?? "")?.[1] ?? "";
}

/** All that a page could have changed. */
async function stateOf(server: TestServer): Promise<string> {
  const of = async (path: string) => (await server.api(path)).body;
  const runs = (await server.rpc("SvcService", "ListRuns", {})).body;
  const functions = (await server.rpc("SvcService", "ListFunctions", {})).body;
  const all = [
    await of("/api/v1/events/names"),
    ((await of("/api/v1/apikeys")) as { id: string }[]).map(({ id }) => id),
    ((await of("/api/v1/users")) as { id: string }[]).map(({ id }) => id),
    await of("/api/v1/secrets"),
    ((await of("/api/v1/environments")) as { id: string }[]).map(({ id }) => id),
    await of("/api/v1/workers"),
    runs.runs,
    functions,
  ];
  return JSON.stringify(all);
}

/** What stands between browser and server; nothing, as it ships. */
export type Front = (server: TestServer) => { url: string; stop(): void };

const noFront: Front = ({ url }) => ({ url, stop() {} });

/** Loopback does not resolve every name: the browser is told where they are. */
const resolved = "--host-resolver-rules=MAP evil.example 127.0.0.1";

async function serveEvil(): Promise<{ port: number; stop(): void }> {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: () => new Response("<!doctype html><body></body>", { headers: { "content-type": "text/html" } }),
  });
  return { port: server.port!, stop: () => void server.stop(true) };
}

/** A link that is followed: the cookie of a Lax site goes along. Pages are closed with the browser. */
async function follow(context: BrowserContext, evil: string, to: string): Promise<Tried> {
  const page = await context.newPage();
  await page.goto(evil);
  const answered = page
    .waitForResponse((response) => response.url() === to, { timeout: 2_000 })
    .catch(() => null);
  await page.evaluate((link) => {
    const anchor = document.createElement("a");
    anchor.href = link;
    document.body.append(anchor);
    anchor.click();
  }, to);
  const answer = await answered;
  const takesJobs = answer?.ok() === true && to.includes("/workers/");
  return { what: `link ${to}`, ...(takesJobs && { read: "jobs were taken" }) };
}

async function attackFrom(context: BrowserContext, place: Place, port: number, target: Target) {
  const evil = `http://${place.host}:${port}/`;
  const page = await context.newPage();
  await page.goto(evil);
  const tried: Tried[] = await page.evaluate(attackFromPage, { target, reading, writing });
  const links = await Promise.all(followed.map((path) => follow(context, evil, target.url + path)));
  return [...tried, ...links];
}

async function attackOne(
  browser: Browser,
  server: TestServer,
  options: { what: string; cookie: string; evilPort: number; url: string; from: readonly Place[] },
): Promise<{ attempts: number; breaches: string[] }> {
  const { what, cookie, evilPort, url, from } = options;
  const breaches: string[] = [];
  let attempts = 0;
  const { port } = new URL(url);
  const before = await stateOf(server);
  // A dashboard opened by either name of this machine leaves its cookie there.
  const context = await browser.newContext();
  await context.addCookies(
    ["127.0.0.1", "localhost"].map((domain) => ({
      name: "svc_dashboard_token",
      value: cookie,
      domain,
      path: "/",
      httpOnly: true,
      sameSite: "Lax" as const,
    })),
  );
  try {
    const attacks = from.map(async (place) => {
      const host = place.host === "localhost" ? "localhost" : "127.0.0.1";
      const target = { url: `http://${host}:${port}`, marker };
      const tried = await attackFrom(context, place, evilPort, target);
      attempts += tried.length;
      for (const { what: how, read } of tried)
        if (
          read !== undefined &&
          (read.includes(marker) || /socket is open|jobs were taken|subscription/.test(read))
        )
          breaches.push(`${what}: ${place.name} read by ${how}: ${read.slice(0, 80)}`);
    });
    await Promise.all(attacks);
    const after = await stateOf(server);
    if (after !== before)
      breaches.push(`${what}: a page of another site changed something: ${differing(before, after)}`);
  } finally {
    // A page that is on its way to somewhere may take its time; the browser's end takes all of them along.
    void context.close().catch(() => {});
  }
  return { attempts, breaches };
}

function differing(before: string, after: string): string {
  let at = 0;
  while (before[at] === after[at]) at++;
  return after.slice(Math.max(0, at - 60), at + 120);
}

export async function attackBrowsers(
  { engines, long, log }: AttackOptions,
  front: Front = noFront,
): Promise<AttackResult> {
  const evil = await serveEvil();
  const breaches: string[] = [];
  let attempts = 0;
  try {
    for (const engine of engines as readonly EngineName[])
      for (const dev of [false, true]) {
        const isFirst = engine === engines[0];
        if (dev && !long && !isFirst) continue;
        const asked = dev ? places.filter(({ isLoopback }) => !isLoopback) : places;
        const all = long ? asked : asked.filter(({ isLongOnly }) => !isLongOnly);
        // Which engine is behind it makes no difference to a browser: one page shows as much.
        const from = long || isFirst ? all : all.slice(0, 1);
        const server = await startTestServer({ engine, settings: { dev, pollHoldMs: 1 } });
        const { url, stop } = front(server);
        try {
          const what = `${dev ? "--dev" : "with a cookie"} on ${engine}`;
          const cookie = await furnish(server);
          const attack = { what, cookie, evilPort: evil.port, url, from };
          const found = await inChrome((browser) => attackOne(browser, server, attack), { args: [resolved] });
          log(`${what}: ${found.attempts} tried, ${found.breaches.length} got through`);
          attempts += found.attempts;
          breaches.push(...found.breaches);
        } finally {
          stop();
          await server.stop();
        }
      }
  } finally {
    evil.stop();
  }
  return {
    size: `${places.length} origins x ${reading.length} reads, ${writing.length} writes, every way a page has`,
    attempts,
    breaches,
  };
}

export const suite: AttackSuite = {
  name: "browsers",
  about: "pages of other sites in a signed-in person's browser, against a server and a --dev server",
  run: (options) => attackBrowsers(options),
};
