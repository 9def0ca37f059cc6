import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { openThrottle, type Throttle } from "../../src/domain/access/sessions/throttle.ts";
import { type TestClock, testClock } from "../../src/kit/clock.ts";
import type { Fault } from "../../src/kit/fault.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { engines, type Home, makeHome, patience } from "../support/server.ts";

describe.each(engines)("attempts to log in, on %s,", (engine) => {
  let home: Home;
  let store: Store;
  let clock: TestClock;
  let nodes: Throttle[];

  beforeAll(async () => {
    home = await makeHome(engine);
    const { db: file, databaseUrl } = home.place;
    clock = testClock();
    store = await openStore({ clock, log: silentLog, file, databaseUrl, limits: patience });
  });
  afterAll(async () => {
    await store?.close();
    await home?.remove();
  });
  beforeEach(() => {
    const limits = { attemptsMax: 3, addressAttemptsMax: 5, accountAttemptsMax: 8 };
    nodes = [1, 2].map(() => openThrottle({ store, clock, ...limits }));
  });
  afterEach(async () => {
    await store.write((session) => session.run(sql`DELETE FROM login_attempts`));
  });

  async function letsIn(account: string, address: string, node = 0): Promise<boolean> {
    try {
      await nodes[node]!.attempt(account, address);
      return true;
    } catch (error) {
      expect((error as Fault).kind).toBe("resource_exhausted");
      expect(Number((error as Fault).headers?.["Retry-After"])).toBeGreaterThan(0);
      return false;
    }
  }
  const together = async (tries: Promise<boolean>[]) => (await Promise.all(tries)).filter(Boolean).length;

  test("are counted for an account and an address, and for an address as a whole, for a minute", async () => {
    expect(await together(Array.from({ length: 10 }, () => letsIn("ada", "192.0.2.1")))).toBe(3);
    expect(await letsIn("ada", "192.0.2.2")).toBe(true);
    // What was refused for the account did not count for the address.
    expect(await letsIn("bob", "192.0.2.1")).toBe(true);
    expect(await letsIn("eve", "192.0.2.1")).toBe(true);
    expect(await letsIn("grace", "192.0.2.1")).toBe(false);
    await clock.advance(60_000);
    expect(await letsIn("ada", "192.0.2.1")).toBe(true);
  });

  test("are counted for all nodes together", async () => {
    const tries = Array.from({ length: 10 }, (_, at) => letsIn("ada", "192.0.2.1", at % 2));
    expect(await together(tries)).toBe(3);
    expect(await letsIn("ada", "192.0.2.1", 1)).toBe(false);
  });

  test("of one account from everywhere are counted too", async () => {
    const tries = Array.from({ length: 20 }, (_, at) => letsIn("ada", `192.0.2.${at}`, at % 2));
    expect(await together(tries)).toBe(8);
    expect(await letsIn("grace", "192.0.2.1")).toBe(true);
  });

  test("that succeed are no guesses", async () => {
    for (let turn = 0; turn < 20; turn++) {
      expect(await letsIn("ada", "192.0.2.1", turn % 2)).toBe(true);
      await nodes[turn % 2]!.succeeded("ada", "192.0.2.1");
    }
  });

  test("of others behind the same proxy keep out nobody who has logged in from there", async () => {
    await nodes[0]!.succeeded("ada", "192.0.2.1");
    await together(Array.from({ length: 12 }, (_, at) => letsIn(`guess ${at}`, "192.0.2.1", at % 2)));
    expect(await letsIn("grace", "192.0.2.1")).toBe(false);
    expect(await letsIn("ada", "192.0.2.1", 0)).toBe(true);
    expect(await letsIn("ada", "192.0.2.1", 1)).toBe(true);
    // Its own guesses are counted all the same.
    expect(await letsIn("ada", "192.0.2.1", 1)).toBe(true);
    expect(await letsIn("ada", "192.0.2.1", 1)).toBe(false);
  });

  test("that are refused make no more rows, and all of them leave", async () => {
    const rows = async () => (await store.all(sql`SELECT key FROM login_attempts`)).length;
    for (let at = 0; at < 6; at++) await letsIn(`guess ${at}`, "192.0.2.1");
    const before = await rows();
    for (let at = 0; at < 50; at++) expect(await letsIn(`other ${at}`, "192.0.2.1")).toBe(false);
    expect(await rows()).toBe(before);
    await clock.advance(60_000);
    await nodes[0]!.forgetOnce();
    expect(await rows()).toBe(0);
  });

  test("stand in the store without what was typed", async () => {
    await letsIn("hunter2 as an email", "192.0.2.1");
    expect(JSON.stringify(await store.all(sql`SELECT * FROM login_attempts`))).not.toMatch(/hunter2|192/);
  });

  test("from all of one IPv6 network are one place's", async () => {
    let host = 0;
    const tries = Array.from({ length: 10 }, () => letsIn("ada", `2001:db8:0:7::${(++host).toString(16)}`));
    expect(await together(tries)).toBe(3);
    expect(await letsIn("ada", "2001:0DB8::7:1:2:3:4")).toBe(false);
    expect(await letsIn("ada", "2001:db8:0:8::1")).toBe(true);
    // The old addresses in new clothes are as many as they were.
    expect(await letsIn("bob", "::ffff:192.0.2.1")).toBe(true);
    expect(await letsIn("bob", "::ffff:192.0.2.2")).toBe(true);
    expect(await letsIn("bob", "::1")).toBe(true);
  });
});
