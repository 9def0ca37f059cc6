import { describe, expect, test } from "bun:test";
import { type TestClock, testClock } from "../../src/kit/clock.ts";
import { Fault } from "../../src/kit/fault.ts";
import type { Log } from "../../src/kit/log.ts";
import { Lineage } from "../../src/store/postgres-lineage.ts";
import { ConnectGate } from "../../src/store/postgres-primary.ts";
import { type NotWritable, StoreError } from "../../src/store/store.ts";
import { watchTroubles } from "../../src/store/troubles.ts";
import { WriteProbe } from "../../src/store/write-probe.ts";

const away = () => new StoreError("unavailable", "connection refused");

describe("the log of an outage", () => {
  const keep = () => {
    const lines: [string, Record<string, unknown>][] = [];
    const add = (event: string, fields: Record<string, unknown> = {}) => void lines.push([event, fields]);
    const log: Log = { debug: add, info: add, warn: add, error: add };
    return { lines, log };
  };

  test("is one line at its begin, one every ten seconds and one at its end, whatever fails meanwhile", async () => {
    const clock = testClock();
    const { lines, log } = keep();
    let attempts = 0;
    const troubles = watchTroubles({ clock, log, attempts: () => attempts });
    const turns: boolean[] = [];
    troubles.onTurn((isAway) => turns.push(isAway));
    troubles.looked(undefined);
    for (let ms = 0; ms < 25_000; ms += 10) {
      attempts++;
      troubles.log.warn("request.trouble", { error: away() });
      troubles.log.info("request.answered", { status: 503 });
      troubles.log.warn("loop.failed", { error: new Error("wrapped", { cause: away() }) });
      troubles.log.error("retention.failed", { error: new AggregateError([away()]) });
      troubles.looked(away());
      await clock.advance(10);
    }
    expect(lines.map(([event]) => event)).toEqual(["store.trouble_began", "store.trouble", "store.trouble"]);
    expect(lines[0]?.[1]).toMatchObject({ first: "request.trouble", error: { trouble: "unavailable" } });
    expect(lines[1]?.[1]).toMatchObject({ ms: 10_000, attempts: 1_000 });
    expect(lines[1]?.[1].unwritten).toMatchObject({ "loop.failed": 1_000, "request.answered": 1_000 });
    expect(turns).toEqual([true]);

    troubles.looked(undefined);
    expect(turns).toEqual([true, false]);
    // Over when it was quiet for a second: one answer between failures is no end.
    expect(lines).toHaveLength(3);
    await clock.advance(1_000);
    troubles.looked(undefined);
    expect(lines.at(-1)).toMatchObject(["store.trouble_over", { ms: 26_000, attempts: 2_499 }]);
  });

  test("leaves every other line alone", () => {
    const { lines, log } = keep();
    const troubles = watchTroubles({ clock: testClock(), log });
    troubles.log.warn("loop.failed", { error: new StoreError("lock_timeout", "held") });
    troubles.log.info("request.answered", { status: 503 });
    troubles.log.warn("request.trouble", { error: new Fault("unavailable", "the message bus") });
    expect(lines.map(([event]) => event)).toEqual(["loop.failed", "request.answered", "request.trouble"]);
  });
});

test("an outage is one attempt at a time for the whole process, with growing pauses; who comes meanwhile hears at once", async () => {
  const clock = testClock();
  const gate = new ConnectGate(clock, () => 0);
  let tried = 0;
  let isAway = true;
  const attempt = async () => {
    tried++;
    await Promise.resolve();
    if (isAway) throw away();
    return "connected";
  };
  const ask = () => gate.through(attempt, () => true).catch((error: Error) => error.message);
  // What is under way when it begins fails as it may.
  await Promise.all(Array.from({ length: 5 }, ask));
  expect(tried).toBe(5);
  for (let ms = 0; ms < 10_000; ms += 10) {
    await Promise.all(Array.from({ length: 50 }, ask));
    await clock.advance(10);
  }
  expect(tried).toBeLessThan(5 + 10_000 / 200 + 5);
  isAway = false;
  await clock.advance(400);
  expect(await ask()).toBe("connected");
  expect(await Promise.all([ask(), ask()])).toEqual(["connected", "connected"]);
});

test("of an older primary, or another server, no connection is taken, and those that are there are dropped", () => {
  const lineage = new Lineage();
  const server = (timeline: number, system = "7") => ({ system, database: "svc", timeline });
  const client = () => {
    let usable = true;
    return {
      usable: () => usable,
      destroy: () => {
        usable = false;
      },
    };
  };
  const seen: number[] = [];
  lineage.onNewer(({ timeline }) => seen.push(timeline));
  const [old, other, newer] = [client(), client(), client()];
  lineage.admit(old, server(1));
  lineage.admit(other, server(1));
  // Of another installation on the same bus.
  lineage.heard({ system: "8", database: "svc", timeline: 9 });
  lineage.heard({ system: "7", database: "else", timeline: 9 });
  expect(old.usable()).toBe(true);
  lineage.heard(server(2));
  expect([old.usable(), other.usable()]).toEqual([false, false]);
  expect(() => lineage.admit(client(), server(1))).toThrow("an old primary");
  expect(() => lineage.admit(client(), server(2, "8"))).toThrow("on another server than before");
  lineage.admit(newer, server(3));
  lineage.heard(server(2));
  expect(newer.usable()).toBe(true);
  expect(seen).toEqual([1, 2, 3]);
});

/** In steps, so that what waits twice is heard between them. */
async function pass(clock: TestClock, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 10) await clock.advance(10);
}

describe("whether the database can be written", () => {
  const world = () => {
    const clock = testClock();
    let commits = 0;
    let gaveUp = 0;
    const state = { commit: async () => {}, little: async () => {}, room: async () => {} };
    const probe = new WriteProbe({
      clock,
      async commit(onAsked) {
        commits++;
        onAsked();
        await state.commit();
      },
      giveUp: () => gaveUp++,
      tryRoom: () => state.little(),
      takeRoom: () => state.room(),
    });
    const ask = () =>
      probe.ping().then(
        () => "yes",
        (error: NotWritable) => error.reason,
      );
    return { clock, probe, state, ask, commits: () => commits, gaveUp: () => gaveUp };
  };

  test("is asked by one commit for all, and a commit that hangs is a no in time", async () => {
    const { clock, state, ask, commits, gaveUp } = world();
    expect(await Promise.all([ask(), ask(), ask()])).toEqual(["yes", "yes", "yes"]);
    expect(commits()).toBe(1);
    await clock.advance(399);
    expect(await ask()).toBe("yes");
    expect(commits()).toBe(1);

    let release = () => {};
    state.commit = () =>
      new Promise<void>((done) => {
        release = done;
      });
    await clock.advance(1);
    const asked = [ask(), ask()];
    await pass(clock, 1_500);
    expect(await Promise.all(asked)).toEqual(Array(2).fill("the database does not finish commits"));
    const again = ask();
    await pass(clock, 300);
    expect(await again).toBe("the database does not finish commits");
    expect(commits()).toBe(2);
    release();
    await clock.advance(1);
    expect(await ask()).toBe("yes");
    expect(gaveUp()).toBe(0);
  });

  test("is no where there is no room although nobody writes, and yes with the first look that finds some", async () => {
    const { clock, state, ask } = world();
    expect(await ask()).toBe("yes");
    state.little = async () => {
      throw new StoreError("full", "could not extend file");
    };
    await clock.advance(399);
    expect(await ask()).toBe("yes");
    await clock.advance(1);
    expect(await ask()).toBe("the database has no room left");
    state.little = async () => {};
    expect(await ask()).toBe("yes");
  });

  test("is no once a write found no room, until as much can be taken", async () => {
    const { clock, probe, state, ask } = world();
    expect(await ask()).toBe("yes");
    const full = new StoreError("full", "could not extend file");
    state.room = async () => {
      throw full;
    };
    probe.note(full);
    expect(await ask()).toBe("the database has no room left");
    state.room = async () => {};
    await clock.advance(1);
    expect(await ask()).toBe("yes");
  });
});
