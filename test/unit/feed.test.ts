import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Feeds, feedHintBytesMax, openFeeds } from "../../src/domain/log/core/feed.ts";
import { eventReads, type LogHint } from "../../src/domain/log/core/feed-reader.ts";
import type { LoggedEvent } from "../../src/domain/log/core/service.ts";
import { testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { commitEvents, loggedEvent } from "../support/logged-events.ts";
import { removeFolder } from "../support/process.ts";

const env = "env_a";
const folder = await mkdtemp(join(tmpdir(), "svc-feed-"));
afterAll(() => removeFolder(folder));
let files = 0;

describe("feed", () => {
  let store: Store;
  let reads = 0;
  /** How often events were made for those who read them. */
  let made = 0;
  let nodes: { feeds: Feeds; deaf: boolean; listeners: Map<string, (hint: LogHint) => void> }[];
  let hints: LogHint[] = [];
  let isReadElsewhere: boolean;

  beforeEach(async () => {
    store = await openStore({ clock: testClock(), log: silentLog, file: join(folder, `${++files}.db`) });
    await store.write((session) =>
      session.run(sql`INSERT INTO heads (environment_id, position, last_at, definitions_version, retention_floor, epoch)
        VALUES (${env}, 0, 0, 0, 0, 1)`),
    );
    reads = made = 0;
    hints = [];
    isReadElsewhere = true;
    nodes = [0, 1].map((place) => {
      const listeners = new Map<string, (hint: LogHint) => void>();
      const counted: Pick<Store, "all"> = {
        all: (query) => {
          reads++;
          return store.all(query);
        },
      };
      return {
        deaf: false,
        listeners,
        feeds: openFeeds({
          reads: eventReads(counted),
          log: silentLog,
          hasOthers: () => true,
          hasReadersElsewhere: () => isReadElsewhere,
          publishHint(hint) {
            hints.push(hint);
            for (const [other, node] of nodes.entries())
              if (other !== place && !node.deaf)
                node.listeners.get(hint.environmentId)?.(structuredClone(hint));
          },
          listen(environmentId, heard) {
            listeners.set(environmentId, heard);
            return () => void listeners.delete(environmentId);
          },
        }),
      };
    });
  });

  let next = 0;
  /** Commits events as the flush does; tells of them at node 0 unless `silent`. */
  const commit = async (count: number, { silent = false, size = 1 } = {}) => {
    const head = await store.one<{ position: number }>(
      sql`SELECT position FROM heads WHERE environment_id = ${env}`,
    );
    const events = Array.from({ length: count }, (_, at): LoggedEvent => {
      const position = head!.position + at + 1;
      const data = JSON.stringify("x".repeat(size));
      return loggedEvent({
        id: `evt_${++next}`,
        position,
        name: "n",
        data,
      });
    });
    await commitEvents(store, env, events);
    if (!silent)
      nodes[0]!.feeds.committed(env, events.at(-1)!.position, () => {
        made++;
        return events;
      });
    return events;
  };
  const reader = () => {
    const got: number[] = [];
    return {
      got,
      onEvents: (events: readonly LoggedEvent[]) => void got.push(...events.map((event) => event.position)),
    };
  };
  const upTo = (last: number, from = 1) => Array.from({ length: last - from + 1 }, (_, at) => from + at);
  /** Reads of this store end within a few turns of the event loop. */
  const settled = async () => {
    for (let turn = 0; turn < 20; turn++) await new Promise((done) => setImmediate(done));
  };

  test("events of a commit reach readers of both nodes without a read", async () => {
    const [here, there] = [reader(), reader()];
    await nodes[0]!.feeds.follow(env, here);
    await nodes[1]!.feeds.follow(env, there);
    const before = reads;
    await commit(3);
    await commit(2);
    expect([here.got, there.got]).toEqual([upTo(5), upTo(5)]);
    expect(reads).toBe(before);
  });

  test("a reader that joins in the turn in which the last one leaves follows an open feed", async () => {
    const { feeds } = nodes[0]!;
    const first = await feeds.follow(env, reader());
    const second = reader();
    const joining = feeds.follow(env, second);
    // The feed is found, and closed before the reader is counted.
    first.stop();
    const following = await joining;
    await commit(2);
    expect(second.got).toEqual(upTo(2));
    await commit(1, { silent: true });
    await feeds.compareOnce();
    await settled();
    expect(second.got).toEqual(upTo(3));
    following.stop();
    expect(feeds.size()).toBe(0);
  });

  test("large commits travel as a number, and are read", async () => {
    const there = reader();
    await nodes[1]!.feeds.follow(env, there);
    await commit(2, { size: feedHintBytesMax });
    await settled();
    expect(there.got).toEqual(upTo(2));
    expect(hints.at(-1)!.events).toBeUndefined();
  });

  test("a commit that no other node is known to read is told by its head alone, and read there", async () => {
    isReadElsewhere = false;
    await commit(2);
    expect([hints.at(-1), made]).toEqual([{ environmentId: env, head: 2 }, 0]);
    const [here, there] = [reader(), reader()];
    await nodes[0]!.feeds.follow(env, here);
    await nodes[1]!.feeds.follow(env, there);
    await commit(2);
    await settled();
    expect(hints.at(-1)).toEqual({ environmentId: env, head: 4 });
    expect([here.got, there.got]).toEqual([upTo(4, 3), upTo(4, 3)]);
  });

  test("a lost hint costs order nothing: the next one brings what is missing, in order", async () => {
    const there = reader();
    await nodes[1]!.feeds.follow(env, there);
    nodes[1]!.deaf = true;
    await commit(2);
    nodes[1]!.deaf = false;
    await commit(1);
    await settled();
    expect(there.got).toEqual(upTo(3));
  });

  test("a lost last hint is found by comparing with the heads", async () => {
    const there = reader();
    await nodes[1]!.feeds.follow(env, there);
    nodes[1]!.deaf = true;
    await commit(4);
    expect(there.got).toEqual([]);
    await nodes[1]!.feeds.compareOnce();
    await settled();
    expect(there.got).toEqual(upTo(4));
  });

  test("hints that come twice, late or out of order give nothing twice", async () => {
    const there = reader();
    await nodes[1]!.feeds.follow(env, there);
    await commit(2);
    await commit(2);
    const heard = nodes[1]!.listeners.get(env)!;
    for (const hint of [...hints].reverse()) heard(hint);
    await commit(1);
    await settled();
    expect(there.got).toEqual(upTo(5));
  });

  test("a reader from behind catches up and joins, while commits go on", async () => {
    await commit(1_200, { silent: true });
    const [late, later] = [reader(), reader()];
    const joining = nodes[1]!.feeds.follow(env, late, 0);
    await commit(3);
    const joiningToo = nodes[1]!.feeds.follow(env, later, 700);
    await commit(3);
    await Promise.all([joining, joiningToo]);
    await commit(3);
    await settled();
    expect(late.got).toEqual(upTo(1_209));
    expect(later.got).toEqual(upTo(1_209, 701));
  });

  test("positions that are gone are passed by", async () => {
    const there = reader();
    await nodes[1]!.feeds.follow(env, there);
    nodes[1]!.deaf = true;
    await commit(5);
    await store.write((session) => session.run(sql`DELETE FROM events WHERE position IN (2, 5)`));
    await nodes[1]!.feeds.compareOnce();
    await settled();
    nodes[1]!.deaf = false;
    await commit(1);
    await settled();
    expect(there.got).toEqual([1, 3, 4, 6]);
  });

  test("a place above the end, or below what is kept, is refused", async () => {
    await commit(5, { silent: true });
    await store.write((session) => session.run(sql`UPDATE heads SET retention_floor = 4`));
    const { feeds } = nodes[0]!;
    await expect(feeds.follow(env, reader(), 6)).rejects.toThrow("above the end of the log, 5");
    await expect(feeds.follow(env, reader(), 2)).rejects.toThrow("below 4 have expired");
    const kept = reader();
    await feeds.follow(env, kept, 3);
    expect(kept.got).toEqual([4, 5]);
    await expect(feeds.follow("env_none", reader())).rejects.toThrow("not found");
    expect(feeds.size()).toBe(1);
  });

  test("a feed ends with its last reader, and its readers with the environment", async () => {
    const { feeds, listeners } = nodes[0]!;
    let ended = 0;
    const first = await feeds.follow(env, reader());
    const second = await feeds.follow(env, { ...reader(), onEnd: () => void ended++ });
    first.stop();
    expect(feeds.size()).toBe(1);
    second.stop();
    expect([feeds.size(), listeners.size]).toEqual([0, 0]);
    await feeds.follow(env, { ...reader(), onEnd: () => void ended++ });
    await store.write((session) => session.run(sql`DELETE FROM heads`));
    // What a deletion says to who listens may still be on its way.
    await feeds.compareOnce();
    expect([feeds.size(), ended]).toEqual([1, 0]);
    await feeds.compareOnce();
    expect([feeds.size(), ended]).toEqual([0, 1]);
  });

  test("one reader that throws costs the others nothing", async () => {
    const good = reader();
    const { feeds } = nodes[0]!;
    await feeds.follow(env, {
      onEvents() {
        throw new Error("mine");
      },
    });
    await feeds.follow(env, good);
    await commit(2);
    expect(good.got).toEqual(upTo(2));
  });
});
