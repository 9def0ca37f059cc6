import { expect, test } from "bun:test";
import { openSequences, sequenceWaitsOfHolderMax } from "../../src/app/log.ts";
import type { FeedReader } from "../../src/domain/log/core/feed-reader.ts";
import type { LoggedEvent } from "../../src/domain/log/core/rows.ts";
import { openLogSequences, sequenceWaitsMax } from "../../src/domain/log/core/sequences.ts";
import { testClock } from "../../src/kit/clock.ts";
import { type LogName, lastPosition, readSequence, sequenceText } from "../../src/kit/sequence.ts";
import { until } from "../support/until.ts";

const environmentId = "env_a";

function setUp(head = { epoch: 3, position: 5 }) {
  const clock = testClock();
  const readers = new Set<FeedReader>();
  let reads = 0;
  const sequences = openLogSequences<LoggedEvent>({
    log: "events",
    clock,
    async heads() {
      reads++;
      return [{ ...head }];
    },
    feeds: {
      async follow(_environment, reader) {
        readers.add(reader);
        return { stop: () => readers.delete(reader), position: () => head.position };
      },
    },
  });
  const commit = (position: number) => {
    head.position = position;
    for (const { onEvents } of [...readers]) onEvents([{ position } as LoggedEvent]);
  };
  const reached = (position: number, more: object = {}) =>
    sequences.reached(
      environmentId,
      { epoch: 3, position },
      { ofFeed: false, timeoutMs: 10_000, signal: new AbortController().signal, ...more },
    );
  return { clock, sequences, commit, reached, readers, reads: () => reads };
}

test("a sequence says its log, and what is none is refused by the name of its field", () => {
  for (const log of ["events", "topics"] as const)
    expect(readSequence("f", sequenceText(log, 3, 14))).toEqual({ log, epoch: 3, position: 14 });
  for (const text of ["", "3", "3.", ".3", "3.1.4", "3.1.events", "-3.1", "3.9007199254740993", " 3.1"])
    expect(() => readSequence("f", text)).toThrow("f: must be what X-Svc-Sequence answered");
  expect(lastPosition([{ position: 3 }, { position: undefined }, { position: 2 }])).toBe(3);
  expect(lastPosition([{ position: undefined }])).toBeUndefined();
});

test("the epoch of a log is read once, and a position that was written here is not asked for", async () => {
  const { sequences, reached, reads, clock } = setUp();
  expect(await sequences.sequenceAt(environmentId, 4)).toBe("3.4");
  expect(sequences.sequenceAt(environmentId, 6)).toBe("3.6");
  expect(sequences.has(environmentId, { epoch: 3, position: 6 })).toBe(true);
  expect(sequences.has(environmentId, { epoch: 3, position: 7 })).toBe(false);
  expect(sequences.has(environmentId, { epoch: 2, position: 1 })).toBe(false);
  expect(reads()).toBe(1);
  await reached(5);
  await clock.advance(120_000);
  expect(await sequences.sequenceAt(environmentId, 8)).toBe("3.8");
  expect(reads()).toBe(3);
});

test("a wait ends with the commit, the time, its caller or the node", async () => {
  const { clock, sequences, commit, reached, readers } = setUp();
  const late = (work: Promise<void>) =>
    work.then(
      () => "reached",
      ({ kind }) => kind,
    );
  const waiting = reached(7);
  const runsOut = late(reached(9, { timeoutMs: 100 }));
  const leaves = new AbortController();
  const left = late(reached(9, { signal: leaves.signal }));
  const drained = late(reached(9));
  await until(() => readers.size === 4, { about: "the waits" });
  commit(6);
  commit(7);
  await waiting;
  await clock.advance(100);
  expect(await runsOut).toBe("unavailable");
  leaves.abort();
  expect(await left).toBe("unavailable");
  sequences.drain();
  expect(await drained).toBe("unavailable");
  expect(readers.size).toBe(0);
});

test("so many callers of an environment wait for a log at a node, and no more", async () => {
  const { sequences, reached, readers } = setUp();
  const share = (3 * sequenceWaitsMax) / 4;
  const all = Array.from({ length: share }, () => reached(9).catch(() => {}));
  await until(() => readers.size === share, { about: "the waits" });
  await expect(reached(9)).rejects.toMatchObject({ kind: "resource_exhausted" });
  await reached(5);
  sequences.drain();
  await Promise.all(all);
});

test("one key or user does not take the places of others, and topics are no part of what is folded", async () => {
  const { sequences } = setUp();
  const ends: (() => void)[] = [];
  const edge = openSequences({
    logs: { events: sequences, topics: sequences },
    waits: { reached: () => new Promise<void>((resolve) => ends.push(resolve)) },
  });
  const read = (log: LogName, holder: string) => {
    const wait = edge.reached(environmentId, { log, epoch: 3, position: 9 }, () => [{ name: "p" }]);
    return wait!({ timeoutMs: 10_000, signal: new AbortController().signal, holder });
  };
  const all = Array.from({ length: sequenceWaitsOfHolderMax }, () => read("events", "ak_a"));
  await until(() => ends.length === sequenceWaitsOfHolderMax, { about: "the waits" });
  await expect(read("events", "ak_a")).rejects.toMatchObject({ kind: "resource_exhausted" });
  await read("topics", "ak_b");
  all.push(read("events", "ak_b"));
  await until(() => ends.length > sequenceWaitsOfHolderMax, { about: "the other key's wait" });
  for (const end of ends) end();
  await Promise.all(all);
});
