import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { runStatuses } from "../../src/domain/engine/runs/rules.ts";
import { countCap } from "../../src/kit/limits.ts";
import { createFunction, createWorker } from "../../src/sdk/index.ts";
import { scrolledThrough, sessionOf, visit } from "../dashboard/visit.ts";
import type { AckedEmit } from "../support/checkers.ts";
import { inChrome } from "../support/chrome.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { openProxy, type TcpProxy } from "../support/proxy.ts";
import { type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { concurrently, emitUntilAcked } from "./load.ts";

/** For long: `bun run test:dashboard`. */
const events = Number(process.env.DASHBOARD_EVENTS ?? 200);
const eventsPerSecond = Number(process.env.DASHBOARD_RATE ?? 50);
const loadMs = (events / eventsPerSecond) * 1_000;

const otherStatuses = runStatuses.filter((status) => status !== "completed");

const quiet = { debug() {}, info() {}, warn() {}, error() {} };

let nats: NatsServer;
let home: Home;
let nodes: SpawnedServer[] = [];
/** Where new connections of the page go. */
let serving = 0;
let balancer: TcpProxy;

beforeAll(async () => {
  [nats, home] = await Promise.all([startNats(), makeHome("postgres")]);
  for (const nodeId of ["a", "b", "c"])
    nodes.push(await spawnServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId } }));
  balancer = await openProxy(() => (serving < 0 ? undefined : Number(new URL(nodes[serving]!.url).port)));
}, 90_000);
afterAll(async () => {
  await balancer?.stop();
  await Promise.all(nodes.map((node) => node.stop()));
  nodes = [];
  await nats?.stop();
  await home?.remove();
}, 120_000);

/** Counts, from now on, how often each event is put into the tail. */
const countShown = (page: Page) =>
  page.evaluate(() => {
    const shown = new Map<string, number>();
    const count = (row: Element) => {
      const id = row.getAttribute("data-event")!;
      shown.set(id, (shown.get(id) ?? 0) + 1);
    };
    for (const row of document.querySelectorAll("[data-event]")) count(row);
    new MutationObserver((changes) => {
      for (const { addedNodes } of changes)
        for (const node of addedNodes)
          if (node instanceof Element)
            for (const row of [node, ...node.querySelectorAll("[data-event]")])
              if (row.hasAttribute("data-event")) count(row);
    }).observe(document.body, { childList: true, subtree: true });
    Object.assign(window, { shown });
  });

const shownIn = (page: Page): Promise<[id: string, times: number][]> =>
  page.evaluate(() => [...(window as unknown as { shown: Map<string, number> }).shown]);

/** Emits at a steady rate, to any node, again until it is acked; answers the events in the order of their positions. */
async function emitAll(event: string, onAcked: (count: number) => void): Promise<AckedEmit[]> {
  const acked: AckedEmit[] = [];
  const tenant = { environmentId: "env_default", key: nodes[0]!.adminKey };
  const startedAt = performance.now();
  let asked = 0;
  await concurrently(events, 16, async (number) => {
    await Bun.sleep(startedAt + (number / eventsPerSecond) * 1_000 - performance.now());
    const emitted = await emitUntilAcked(
      { event, data: { number }, idempotencyKey: `${event}-${number}` },
      { url: () => nodes[asked++ % nodes.length]!.url, tenant },
    );
    acked.push(emitted);
    onAcked(acked.length);
  });
  return acked.sort((one, other) => one.position - other.position);
}

interface ListedRun {
  id: string;
  status: string;
}

const listed = async (functionId: string, statuses: string[] = []) => {
  const asked = { functionId, statuses, limit: 200 };
  const { body } = await nodes[1]!.rpc("SvcService", "ListRuns", asked);
  return { total: Number(body.totalCount ?? 0), runs: (body.runs ?? []) as ListedRun[] };
};

async function watchThroughAKill(browser: Browser, name: string): Promise<void> {
  const [first, second] = nodes as [SpawnedServer, SpawnedServer];
  const event = `${name}.asked`;
  const answers = createFunction({ id: name, event }, ({ step }) => step.run("one", () => 1));
  const worker = createWorker({
    ...{ url: second.url, apiKey: second.adminKey, functions: [answers], log: quiet },
    ...{ maxConcurrentJobs: 50, handleSignals: false },
  });
  await worker.start();
  serving = 0;
  const session = await sessionOf(second, "viewer");
  const place = { url: `http://127.0.0.1:${balancer.port}`, env: second.env };
  const runs = await visit(browser, place, { path: `runs?function=${name}`, session });
  const tail = await visit(browser, place, { path: `events?pattern=${event}`, session });
  for (const { page } of [runs, tail]) await page.getByText("Live", { exact: true }).waitFor();
  await tail.page.getByText("Waiting for events").waitFor();
  await countShown(tail.page);

  let killing: Promise<void> | undefined;
  const kill = async () => {
    // Nobody answers until the balancer has noticed.
    serving = -1;
    await first.kill9();
    for (const { page } of [runs, tail]) await page.getByText("Connection lost").waitFor();
    serving = 1;
    for (const { page } of [runs, tail]) await page.getByText("Live", { exact: true }).waitFor();
  };
  const acked = await emitAll(event, (count) => {
    if (count >= events / 3) killing ??= kill();
  });
  await killing;
  const ids = acked.map(({ eventId }) => eventId);

  const shownTimes = await until(
    async () => {
      const shown = await shownIn(tail.page);
      return shown.length >= ids.length && shown;
    },
    { about: "every event in the tail", everyMs: 100 },
  );
  expect(shownTimes.filter(([, times]) => times !== 1)).toEqual([]);
  expect(shownTimes.map(([id]) => id).sort()).toEqual([...ids].sort());
  const stands = await tail.page
    .locator("[data-event]")
    .evaluateAll((rows) => rows.map((row) => row.getAttribute("data-event")));
  expect(stands).toEqual(ids.toReversed().slice(0, stands.length));

  const counted = Math.min(events, countCap);
  const isOver = async () =>
    (await listed(name, otherStatuses)).total === 0 && (await listed(name, ["completed"])).total === counted;
  await until(isOver, { about: "every run to complete", everyMs: 100, deadlineMs: 60_000 });
  const wanted = (await listed(name)).runs.slice(0, 10).map(({ id }) => ({ id, status: "Completed" }));
  // The server counts so far and no further: a list that was read again says that there are more.
  const more = events > countCap ? "|1\\d,\\d{3}\\+" : "";
  const total = new RegExp(`^(${events.toLocaleString("en-US")}${more}) runs `);
  // No longer than the frames that were lost may be waited for by whoever looks.
  await runs.page.getByText(total).waitFor();
  await until(
    async () => {
      const shown = await runs.page.locator("[data-run]").evaluateAll((rows) =>
        rows.slice(0, 10).map((row) => ({
          id: row.getAttribute("data-run"),
          status: row.querySelector(".run-status")?.textContent?.trim(),
        })),
      );
      expect(shown).toEqual(wanted);
      return true;
    },
    { about: "the rows of the list to be those of the API", everyMs: 100 },
  );
  const rows = await scrolledThrough(runs.page);
  expect(rows.sort()).toEqual(acked.flatMap(({ runIds }) => runIds).sort());
  for (const { page, complaints } of [runs, tail]) {
    expect(complaints).toEqual([]);
    await page.context().close();
  }
  await worker.stop();
  await first.restart();
}

test(
  "pages go on at another node when theirs is killed, and miss and double nothing",
  async () => {
    let browsers = 0;
    await inChrome((browser) => watchThroughAKill(browser, `watched-${++browsers}`), {
      patienceMs: 120_000 + 2 * loadMs,
    });
  },
  400_000 + 6 * loadMs,
);
