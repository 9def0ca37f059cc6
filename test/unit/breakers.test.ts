import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Breakers, openBreakers } from "../../src/domain/engine/breakers/service.ts";
import { type TestClock, testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { removeFolder } from "../support/process.ts";

const endpoint = { environmentId: "env_default", functionId: "f", endpointUrl: "http://x/" };
let folder: string;
let store: Store;
let clock: TestClock;
let writes = 0;
/** Answers of reads wait for it. */
let gate: Promise<void> | undefined;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "svc-breakers-"));
  clock = testClock();
  store = await openStore({ clock, log: silentLog, file: join(folder, "svc.db") });
  writes = 0;
  gate = undefined;
});
afterEach(async () => {
  await store.close();
  await removeFolder(folder);
});

const node = (): Breakers =>
  openBreakers({
    clock,
    log: silentLog,
    store: {
      ...store,
      write: (work) => {
        writes++;
        return store.write(work);
      },
      all: async (text) => {
        const rows = await store.all<never>(text);
        await gate;
        return rows;
      },
    },
  });
const failures = async (breakers: Breakers, count: number) => {
  for (let at = 0; at < count; at++) await breakers.failed(endpoint);
};

test("a success where nothing failed writes nothing; one among failures begins their count anew", async () => {
  const breakers = node();
  await breakers.succeeded(endpoint, clock.now());
  expect(writes).toBe(0);
  await failures(breakers, 4);
  await breakers.succeeded(endpoint, clock.now());
  await failures(breakers, 4);
  expect(await breakers.admits(endpoint)).toBe("closed");
  await failures(breakers, 1);
  expect(await breakers.admits(endpoint)).toBe("open");
});

test("after half a minute one node tries, and a trial that fails opens it for as long again", async () => {
  const [first, second] = [node(), node()];
  await failures(first, 5);
  await second.lookOnce();
  await clock.advance(29_999);
  expect(await first.admits(endpoint)).toBe("open");
  await clock.advance(1);
  expect([await first.admits(endpoint), await second.admits(endpoint)]).toEqual(["trial", "open"]);
  expect((await second.list("env_default"))[0]).toMatchObject({ state: "open", consecutiveFails: 5 });
  await first.failed(endpoint);
  await clock.advance(29_999);
  expect(await first.admits(endpoint)).toBe("open");
  await clock.advance(1);
  await second.lookOnce();
  expect(await second.admits(endpoint)).toBe("trial");
  await second.succeeded(endpoint, clock.now());
  await first.lookOnce();
  expect(await first.admits(endpoint)).toBe("closed");
});

test("a call that began before the breaker opened does not close it", async () => {
  const breakers = node();
  const begunAt = clock.now();
  await clock.advance(1_000);
  await failures(breakers, 5);
  await breakers.succeeded(endpoint, begunAt);
  expect(breakers.isOpen(endpoint)).toBe(true);
  await breakers.lookOnce();
  expect(await breakers.admits(endpoint)).toBe("open");
  await clock.advance(30_000);
  expect(await breakers.admits(endpoint)).toBe("trial");
  await breakers.succeeded(endpoint, clock.now());
  expect(await breakers.admits(endpoint)).toBe("closed");
});

test("what this node saw while it looked is not forgotten for what the look has read", async () => {
  const breakers = node();
  let open = () => {};
  gate = new Promise((resolve) => {
    open = resolve;
  });
  const look = breakers.lookOnce();
  await failures(breakers, 5);
  open();
  await look;
  expect(breakers.isOpen(endpoint)).toBe(true);

  gate = new Promise((resolve) => {
    open = resolve;
  });
  const next = breakers.lookOnce();
  await breakers.succeeded(endpoint, clock.now() + 1);
  open();
  await next;
  expect(breakers.isOpen(endpoint)).toBe(false);
});

test("addresses that fail once and never again do not fill what every node reads", async () => {
  const breakers = node();
  await breakers.failed({ ...endpoint, environmentId: "env_other" });
  await failures(breakers, 5);
  const old = sql`INSERT INTO breakers (environment_id, function_id, endpoint_url, fails, last_failure_at)
    WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < 1005)
    SELECT 'env_default', 'f', 'http://x/' || at, 1, at FROM n`;
  await store.write((session) => session.run(old));
  await breakers.failed({ ...endpoint, endpointUrl: "http://x/new" });
  expect(await breakers.list("env_default")).toHaveLength(1_000);
  expect(await breakers.list("env_other")).toHaveLength(1);
});
