import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import type { TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { noteWrites } from "./writes.ts";

/** What a page may take to show something on a loaded machine. */
const patienceMs = 20_000;
const password = "correct horse battery staple";

/** The session's cookie of a user with this role, who is made where there is none. */
export async function sessionOf(
  server: Pick<TestServer, "api">,
  role: "admin" | "developer" | "viewer",
): Promise<string> {
  const email = `${role}@example.test`;
  await server.api("/api/v1/users", { body: { email, password, roles: [role] } });
  const { headers } = await server.api("/api/v1/auth/login", { key: null, body: { email, password } });
  return /svc_dashboard_token=([^;]+)/.exec(headers.get("set-cookie") ?? "")?.[1] ?? "";
}

/** That of the first user of the platform. */
export async function platformSessionOf({ api }: Pick<TestServer, "api">): Promise<string> {
  const root = { email: "root@example.test", password };
  await api("/api/v1/platform/bootstrap", { body: { ...root, name: "Root" } });
  return (await api("/api/v1/platform/auth/login", { body: root, key: null })).body.token;
}

export interface Visited {
  page: Page;
  /** What the page threw or the browser refused, such as a breach of the policy. */
  complaints: string[];
}

/** A tab of its own, signed in where there is a session, at a path behind org and environment. */
export async function visit(
  browser: Browser,
  server: Pick<TestServer, "url" | "env">,
  {
    path,
    session,
    before,
    ...options
  }: {
    path: string;
    session?: string;
    /** What is done with the tab before it opens anything. */
    before?: (page: Page) => Promise<unknown>;
  } & BrowserContextOptions,
): Promise<Visited> {
  const context = await browser.newContext(options);
  if (session !== undefined)
    await context.addCookies([
      { name: "svc_dashboard_token", value: session, url: server.url, httpOnly: true, sameSite: "Lax" },
    ]);
  const page = await context.newPage();
  page.setDefaultTimeout(patienceMs);
  await before?.(page);
  noteWrites(page);
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource|WebSocket connection/.test(message.text()))
      complaints.push(message.text());
  });
  await page.goto(
    `${server.url}/dashboard/${path.startsWith("~") ? path.slice(1) : `org_default/${server.env}/${path}`}`,
  );
  return { page, complaints };
}

/** Turns the page to an address of its own as a link in it does: without loading it anew. */
export async function turnTo(page: Page, href: string): Promise<void> {
  await page.evaluate(async (to) => {
    history.pushState(null, "", to);
    dispatchEvent(new PopStateEvent("popstate"));
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  }, href);
  await page.locator("main[aria-busy=false]").waitFor();
}

/** Ids of all rows, from the first to the last, as somebody sees them who scrolls through the list of runs. */
export const scrolledThrough = (page: Page): Promise<string[]> =>
  page.evaluate(async () => {
    const list = document.querySelector(".virtual")!;
    const ids = new Set<string>();
    for (let atEnd = 0; atEnd < 10; ) {
      await new Promise((drawn) => requestAnimationFrame(drawn));
      for (const row of list.querySelectorAll("[data-run]")) ids.add(row.getAttribute("data-run")!);
      if (list.querySelector(".place")) continue;
      const before = list.scrollTop;
      list.scrollTop += list.clientHeight;
      atEnd = list.scrollTop === before ? atEnd + 1 : 0;
    }
    return [...ids];
  });

/** Registers a function that the event starts, and a worker for it. */
export async function functionWithWorker(server: TestServer, id: string, event: string, more: object = {}) {
  const made = { id, triggers: [{ event }], recording: true, retry: { maxAttempts: 1 }, ...more };
  const { status, body } = await server.rpc("SvcService", "RegisterFunction", made);
  if (status !== 200) throw new Error(`${id} is not registered: ${body.message}`);
  const worker = pullWorker(server, `worker-${id.replace(/\W+/g, "-")}`);
  await worker.register(id);
  return {
    ...worker,
    /** The next job, of the run of an event that was just emitted. */
    job: (): Promise<Assignment> => until(async () => (await worker.poll())[0], { about: `a job of ${id}` }),
  };
}

export async function emit(server: TestServer, event: string, data: unknown = {}): Promise<string> {
  const { body } = await server.rpc("SvcService", "Emit", { event, data });
  return (body.runIds ?? [])[0] ?? "";
}

/** A step as workers report it. */
export const stepOf = (job: Assignment, name: string, rest: object) => ({
  ...{ id: `${job.run_id}:${name}:0`, name, type: "invoke", status: "completed" },
  ...{ started_at: new Date(Date.now() - 40).toISOString(), ended_at: new Date().toISOString() },
  ...rest,
});

export const statusOf = async (server: TestServer, id: string): Promise<string> =>
  (await server.rpc("SvcService", "GetRun", { id })).body.status;
