import { describe, expect, test } from "bun:test";
import { parsePattern } from "../../src/domain/realtime/pubsub/rules.ts";
import { openScreenings } from "../../src/domain/realtime/pubsub/screening.ts";
import { openSubscriptionStreams } from "../../src/domain/realtime/pubsub/subscription-streams.ts";
import { type BufferedConnection, watchSendBuffers } from "../../src/edge/send-buffers.ts";
import { testClock } from "../../src/kit/clock.ts";
import type { Fault } from "../../src/kit/fault.ts";
import { openHolderLimit, openOrgLimit } from "../../src/kit/holder-limit.ts";
import { noMetrics } from "../../src/kit/metrics.ts";

test("so many for one holder, each given back once", () => {
  const holdings = openHolderLimit({ most: 2, what: "sockets" });
  const first = holdings.acquire("ak_a");
  holdings.acquire("ak_a");
  let fault: Fault | undefined;
  try {
    holdings.acquire("ak_a");
  } catch (error) {
    fault = error as Fault;
  }
  expect([fault?.kind, fault?.code]).toEqual(["resource_exhausted", "LIMIT_EXCEEDED"]);
  holdings.acquire("ak_b");
  first();
  first();
  expect(holdings.count("ak_a")).toBe(1);
});

describe("what readers leave unread", () => {
  function readersOf(unread: Record<string, [holder: string, bytes: number]>) {
    const cut: string[] = [];
    const readers = Object.entries(unread).map(
      ([name, [holder, bytes]]): BufferedConnection => ({
        holder,
        unread: () => bytes,
        cut: () => void cut.push(name),
      }),
    );
    return { readers, cut };
  }

  test("of one key is cut down to its bound, the slowest first, then that of all", async () => {
    const clock = testClock();
    const watch = watchSendBuffers({ clock, bytesMax: 100, callerBytesMax: 60 });
    const { readers, cut } = readersOf({
      ...{ a1: ["a", 30], a2: ["a", 40], a3: ["a", 20] },
      ...{ b1: ["b", 55], c1: ["c", 10], d1: ["d", 0] },
    });
    for (const reader of readers) watch.add(reader);
    watch.sent(1);
    await clock.advance(1);
    expect(cut).toEqual([]);
    watch.sent(2 * 1024 * 1024);
    await clock.advance(1);
    // 90 of a become 50; then all have 115, and the one with most goes.
    expect(cut).toEqual(["a2", "b1"]);
  });
});

test("nobody has all places: the second holder has its share, and the third", () => {
  const holdings = openHolderLimit({ most: 68, what: "calls", all: 68 });
  const taken = ["env_a", "env_b", "env_c"].map((holder) => {
    for (let count = 0; ; count++) {
      if (holdings.free(holder) <= 0) return count;
      holdings.acquire(holder);
    }
  });
  expect(taken).toEqual([51, 13, 3]);
  expect(() => holdings.acquire("env_a")).toThrow("too many calls");
});

test("an organization has one share, however many keys it makes", () => {
  const places = openOrgLimit({ most: 16, all: 64, what: "requests" });
  const take = (id: string, orgId: string): number => {
    for (let count = 0; ; count++)
      try {
        places.acquire({ id, orgId });
      } catch (error) {
        expect((error as Fault).code).toBe("LIMIT_EXCEEDED");
        return count;
      }
  };
  const keys = ["ak_1", "ak_2", "ak_3", "ak_4", "ak_5"];
  expect(keys.map((id) => take(id, "org_a"))).toEqual([16, 16, 16, 0, 0]);
  expect(take("ak_6", "org_b")).toBe(12);
  const few = openOrgLimit({ most: 2, all: 2, what: "requests" });
  expect(() => few.acquire({ id: "ak_1", orgId: "org_a" }, 2)).not.toThrow();
  // What one of the two bounds refuses takes no place of the other.
  expect(() => few.acquire({ id: "ak_2", orgId: "org_a" })).toThrow("for one organization");
  expect(() => few.acquire({ id: "ak_2", orgId: "org_a" }, 3)).toThrow("for one key or user");
});

test("streams of one key are so many, and one that ends makes room", async () => {
  const never = new Promise<never>(() => {});
  const pubsub = {
    read: () => ({}),
    specOf: () => ({ pattern: parsePattern("a") }),
    subscribe: () => never,
  } as unknown as Parameters<typeof openSubscriptionStreams>[0];
  const streams = openSubscriptionStreams(pubsub, openScreenings(noMetrics));
  const open = (holder: string) => {
    const caller = { screen: () => undefined, onRenewed: () => {} };
    const reader = {
      ...{ signal: new AbortController().signal, holder, caller },
      ...{ permit: async () => {}, admitted: () => {} },
    };
    return streams.subscribe("env_a", { pattern: "a" }, reader)[Symbol.asyncIterator]().next();
  };
  for (let count = 0; count < 1_000; count++) void open("ak_a");
  expect(await open("ak_a").catch((error: Fault) => error.kind)).toBe("resource_exhausted" as never);
});
