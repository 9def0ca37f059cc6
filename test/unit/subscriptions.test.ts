import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { busOver } from "../../src/bus/channel.ts";
import { localNetwork } from "../../src/bus/local.ts";
import { type Feeds, openFeeds } from "../../src/domain/log/core/feed.ts";
import { eventReads, openPast, type Past } from "../../src/domain/log/core/feed-reader.ts";
import type { LoggedEvent } from "../../src/domain/log/core/service.ts";
import { openTopicsPast, topicReads } from "../../src/domain/log/topics/past.ts";
import { sourcesOf } from "../../src/domain/realtime/pubsub/delivery.ts";
import { type Frames, openFrames } from "../../src/domain/realtime/pubsub/frames.ts";
import type { SubscribeInput } from "../../src/domain/realtime/pubsub/options.ts";
import { type Member, openPubSub, type PubSub } from "../../src/domain/realtime/pubsub/service.ts";
import { type TestClock, testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { commitEvents, loggedEvent } from "../support/logged-events.ts";
import { removeFolder } from "../support/process.ts";
import { until } from "../support/until.ts";

const env = "env_a";
const noGroups = () => Promise.reject(new Error("no groups here"));
const folder = await mkdtemp(join(tmpdir(), "svc-pubsub-"));
afterAll(() => removeFolder(folder));
let files = 0;

describe("subscriptions", () => {
  let store: Store;
  let clock: TestClock;
  let frames: Frames;
  let feeds: Feeds;
  let pubsub: PubSub;
  /** The frames of one of several nodes, and those of another. */
  let amongOthers: (passedOn: (other: Frames) => void) => void;
  /** Reads of the past that fail. */
  let failures = 0;
  let position = 0;
  /** Called with every slice that is read from the past, before it is given. */
  let onRead: () => Promise<void> = async () => {};

  beforeEach(async () => {
    clock = testClock();
    failures = 0;
    position = 0;
    onRead = async () => {};
    store = await openStore({ clock, log: silentLog, file: join(folder, `${++files}.db`) });
    await store.write((session) =>
      session.run(sql`INSERT INTO heads (environment_id, position, last_at, definitions_version, retention_floor, epoch)
        VALUES (${env}, 0, 0, 0, 0, 1)`),
    );
    const alone = {
      log: silentLog,
      hasOthers: () => false,
      hasReadersElsewhere: () => false,
      publishHint: () => {},
      listen: () => () => {},
    };
    feeds = openFeeds({ ...alone, reads: eventReads(store) });
    const bus = busOver(localNetwork()({ clock, nodeId: "a", onError: () => {} }), silentLog);
    frames = openFrames({ bus, clock, log: silentLog, self: "a" });
    const past = openPast(store);
    const troubled: Past = {
      ...past,
      async between(...args) {
        if (failures-- > 0) throw new Error("the store is away");
        const found = await past.between(...args);
        await onRead();
        return found;
      },
      async newest(...args) {
        if (failures-- > 0) throw new Error("the store is away");
        return past.newest(...args);
      },
    };
    const sources = sourcesOf({
      feeds,
      past: troubled,
      topicFeeds: openFeeds({ ...alone, reads: topicReads(store) }),
      topicsPast: openTopicsPast(store),
    });
    const changePlaces = async (id: string) => [id];
    const deps = { store, clock, log: silentLog, sources, joinGroup: noGroups, changePlaces };
    pubsub = openPubSub({ ...deps, frames });
    amongOthers = (passedOn) => {
      const join = localNetwork();
      const nodeOf = (nodeId: string) => busOver(join({ clock, nodeId, onError: () => {} }), silentLog);
      const framesOf = (self: string, listening: () => Promise<void>) =>
        openFrames({ bus: { ...nodeOf(self), kind: "nats", listening }, clock, log: silentLog, self });
      const other = framesOf("b", async () => {});
      frames = framesOf("a", () => Promise.resolve().then(() => passedOn(other)));
      pubsub = openPubSub({ ...deps, frames });
    };
  });

  /** Commits events as an emit would, and tells the feed of this node unless another node did it. */
  async function emit(count: number, { name = "a", elsewhere = false } = {}): Promise<void> {
    const events = Array.from({ length: count }, (): LoggedEvent => {
      position++;
      return loggedEvent({
        id: `evt_${position}`,
        position,
        name,
        data: `{"n":${position}}`,
      });
    });
    await commitEvents(store, env, events);
    if (!elsewhere) feeds.committed(env, position, () => events);
  }

  async function subscribe(input: SubscribeInput, full: () => void | Promise<void> = () => {}) {
    const got: number[] = [];
    const said: string[] = [];
    const wanted = pubsub.read(input);
    const spec = pubsub.specOf({ environmentId: env, wanted, ordinal: 0 });
    const member: Member = {
      accepted: () => void said.push("accepted"),
      deliver(_spec, delivery) {
        got.push(delivery.sequence ?? 0);
        return full();
      },
      joined: () => void said.push("joined"),
      troubled: () => void said.push("troubled"),
      isApart: () => false,
      async permit() {},
      ended: (refused) => void said.push(refused ? `ended: ${refused.message}` : "ended"),
    };
    const sink = {
      publish: (_: unknown, delivery: { sequence: number | undefined }) => got.push(delivery.sequence!),
    };
    const subscription = await pubsub.subscribe(spec, wanted, sink as never, member);
    const joined = () => until(() => said.includes("joined"), { about: "the join" });
    return { got, said, joined, stop: () => subscription.stop() };
  }
  const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, at) => from + at);

  test("a catch-up that retention overtakes ends and says so, rather than leave something out", async () => {
    await emit(1_200);
    let rounds = 0;
    onRead = async () => {
      if (rounds++ !== 0) return;
      // Behind the first slice, as retention does it: the floor first, then what lies below.
      await store.write((session) =>
        session.run(sql`UPDATE heads SET retention_floor = 900 WHERE environment_id = ${env}`),
      );
      await store.write((session) => session.run(sql`DELETE FROM events WHERE position < 900`));
    };
    const one = await subscribe({ pattern: "a", startAfterSequence: 5n });
    await until(() => one.said.some((what) => what.startsWith("ended")), { about: "the refusal" });
    expect(one.said).toEqual(["accepted", "ended: positions below 900 expired before they were read"]);
    const untouched = one.got.length;
    await emit(1);
    expect(one.got).toHaveLength(untouched);
    expect(one.got).toEqual(range(6, 5 + untouched));
    // From the floor on it can begin anew.
    const again = await subscribe({ pattern: "a", startAfterSequence: 899n });
    await again.joined();
    expect(again.got).toEqual(range(900, 1_201));
  });

  test("what is committed during the catch-up comes once, in its place", async () => {
    await emit(1_200);
    let rounds = 0;
    onRead = async () => {
      if (rounds++ < 4) await emit(30);
    };
    const one = await subscribe({ pattern: "a", startAfterSequence: 100n });
    await one.joined();
    await emit(5);
    expect(one.got).toEqual(range(101, position));
    expect(one.said).toEqual(["accepted", "joined"]);
    one.stop();
    await emit(1);
    expect(one.got.at(-1)).toBe(position - 1);
    expect([pubsub.size(), feeds.size()]).toEqual([0, 0]);
  });

  test("troubles of the store are waited out: nothing is left out or repeated", async () => {
    await emit(700);
    for (const input of [{ startAfterSequence: 10n }, { replay: 690 }]) {
      failures = 3;
      const one = await subscribe({ pattern: "a", ...input });
      for (let round = 0; round < 3; round++) {
        await until(() => one.said.filter((word) => word === "troubled").length > round, {
          about: "trouble",
        });
        await clock.advance(10_000);
      }
      await one.joined();
      expect(one.got).toEqual(range(11, 700));
      one.stop();
    }
  });

  test("a full reader is waited for; one that stops meanwhile gets nothing more", async () => {
    await emit(10);
    let open = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const one = await subscribe({ pattern: "a", startAfterSequence: 0n }, () => gate);
    await until(() => one.got.length === 1, { about: "the first" });
    const other = await subscribe({ pattern: "a", startAfterSequence: 0n });
    await other.joined();
    expect([one.got.length, other.got.length]).toEqual([1, 10]);
    one.stop();
    open();
    await emit(1);
    expect([one.got.length, other.got.length]).toEqual([1, 11]);
    other.stop();
  });

  test("a start that this node has not heard of yet is no reason to repeat", async () => {
    await emit(3);
    const first = await subscribe({ pattern: "a" });
    await emit(5, { elsewhere: true });
    const one = await subscribe({ pattern: "a", startAfterSequence: 6n });
    await feeds.compareOnce();
    await until(() => first.got.length === 5, { about: "the compared events" });
    expect(first.got).toEqual(range(4, 8));
    expect(one.got).toEqual([7, 8]);
    expect(one.said).toEqual(["accepted", "joined"]);
    await emit(1);
    expect(one.got).toEqual([7, 8, 9]);
    for (const each of [first, one]) each.stop();
  });

  test("below the floor is refused with the floor named, above the end with the end", async () => {
    await emit(20);
    await store.write((session) =>
      session.run(sql`UPDATE heads SET retention_floor = 11 WHERE environment_id = ${env}`),
    );
    const refused = (start: bigint) =>
      subscribe({ pattern: "a", startAfterSequence: start }).then(
        () => "passes",
        (error: Error) => error.message,
      );
    expect(await refused(9n)).toContain("positions below 11 have expired");
    expect(await refused(21n)).toContain("above the end of the log, 20");
    expect(await refused(2n ** 63n)).toContain("9223372036854775808");
    expect(pubsub.size()).toBe(0);
    const whole = await subscribe({ pattern: "a", startAfterSequence: 0n });
    await whole.joined();
    expect(whole.got).toEqual(range(11, 20));
    const rest = await subscribe({ pattern: "a", startAfterSequence: 10n });
    await rest.joined();
    expect(rest.got).toEqual(range(11, 20));
    for (const each of [whole, rest]) each.stop();
  });

  test("an environment that goes ends its subscriptions, also those that catch up", async () => {
    await emit(5);
    const live = await subscribe({ pattern: "a" });
    onRead = async () => {
      await store.write((session) => session.run(sql`DELETE FROM heads WHERE environment_id = ${env}`));
      for (const _twice of [1, 2]) await feeds.compareOnce();
    };
    const late = await subscribe({ pattern: "a", startAfterSequence: 0n });
    await until(() => late.said.includes("ended"), { about: "the end" });
    expect(live.said).toContain("ended");
    for (const each of [live, late]) each.stop();
    expect([pubsub.size(), feeds.size()]).toEqual([0, 0]);
  });

  test("interest in frames of steps and workers comes and goes with its subscriptions", async () => {
    const wanted = () => (["runs", "steps", "workers"] as const).filter((kind) => frames.wants(kind, env));
    const ends = await subscribe({ pattern: "system.run.*.completed" });
    expect(wanted()).toEqual(["runs"]);
    const workers = await subscribe({ pattern: "system.worker.>" });
    const steps = await subscribe({ pattern: "system.run.r.step.*.failed" });
    expect(wanted()).toEqual(["runs", "steps", "workers"]);
    for (const each of [ends, workers, steps]) each.stop();
    expect(wanted()).toEqual([]);
  });

  test("other nodes make its frames when a subscription is confirmed", async () => {
    const made: boolean[] = [];
    amongOthers((other) => made.push(other.wants("steps", env)));
    const steps = await subscribe({ pattern: "system.run.r.step.*.failed" });
    const again = await subscribe({ pattern: "system.run.q.step.*.failed" });
    // When its hub listens, and when it was announced; the second has nothing to announce.
    expect(made).toEqual([false, true]);
    for (const each of [steps, again]) each.stop();
  });

  test("interest in run frames comes and goes with its subscriptions", async () => {
    expect(frames.wantsRuns()).toBe(false);
    const one = await subscribe({ pattern: "system.run.>" });
    const other = await subscribe({ pattern: "system.>" });
    const none = await subscribe({ pattern: "system.function.>" });
    expect([frames.wantsRuns(env), frames.wantsRuns("env_b")]).toEqual([true, false]);
    one.stop();
    expect(frames.wantsRuns(env)).toBe(true);
    other.stop();
    expect(frames.wantsRuns()).toBe(false);
    none.stop();
  });
});
