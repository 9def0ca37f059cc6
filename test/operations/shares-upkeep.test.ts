import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Bus } from "../../src/bus/bus.ts";
import { openPurge } from "../../src/domain/access/tenancy/purge.ts";
import { openDelayedEvents } from "../../src/domain/engine/emit/delayed-events.ts";
import { openTellFailures } from "../../src/domain/engine/failures/service.ts";
import type { FunctionDefinition } from "../../src/domain/engine/functions/definition.ts";
import { raiseDefinitions } from "../../src/domain/engine/functions/register.ts";
import { openPush, type PushDeps, pushFunctionsMax } from "../../src/domain/engine/push/service.ts";
import { openQuotas } from "../../src/domain/engine/quotas/service.ts";
import { openPast } from "../../src/domain/log/core/feed-reader.ts";
import { openStreams, type StreamsDeps } from "../../src/domain/log/streams/service.ts";
import { openExpiry } from "../../src/domain/log/topics/service.ts";
import { openGroups } from "../../src/domain/realtime/groups/service.ts";
import type { Sources } from "../../src/domain/realtime/pubsub/delivery.ts";
import { openMirror } from "../../src/domain/record/outbox/mirror.ts";
import { openOutbox } from "../../src/domain/record/outbox/service.ts";
import { openRetention } from "../../src/domain/record/retention/service.ts";
import { silentLog } from "../../src/kit/log.ts";
import { noMetrics } from "../../src/kit/metrics.ts";
import { sql } from "../../src/kit/sql.ts";
import { noWatch } from "../../src/kit/watch.ts";
import { plant } from "../support/plant.ts";
import { engines } from "../support/server.ts";
import {
  both,
  clock,
  greedy,
  ids,
  modest,
  nothing,
  type SharedStore,
  sharedStore,
} from "../support/shares.ts";

const day = 86_400_000;

describe.each(engines)("upkeep is shared by environment on %s", (engine) => {
  let shared: SharedStore;
  beforeAll(async () => {
    shared = await sharedStore(engine);
  });
  afterAll(() => shared.close());

  test("outbox.relay", async () => {
    await shared.pile("outbox", 1_000, "due_at", { id: `'ob_${greedy}_' || n`, kind: "'control'" });
    const sent: string[] = [];
    shared.watch(async () => sent.includes(modest));
    const send = async ({ environment_id }: { environment_id: string }) => void sent.push(environment_id);
    const outbox = openOutbox({
      store: shared.spied,
      clock,
      ids,
      log: silentLog,
      metrics: noMetrics,
      senders: { control: send, mirror: send },
      attemptsMax: 10,
      payloadBytesMax: 1_000,
      announce: nothing,
      relayIn: nothing,
    });
    const write = shared.spied.write;
    while ((await outbox.relayOnce(write)).againInMs === 0);
    await shared.expectShared();
    expect(await shared.count("outbox")).toBe(0);
  });

  test("events.delayed", async () => {
    await shared.pile("delayed_events", 1_000, "wake_at", { id: `'dly_${greedy}_' || n`, data: "'{}'" });
    shared.watch(shared.gone(`delayed_events WHERE environment_id = '${modest}'`));
    const delays = openDelayedEvents({
      store: shared.spied,
      clock,
      ids,
      log: silentLog,
      watch: noWatch,
      events: { emit: async () => [], check: async () => {} },
      shareEnvironment: async () => {},
      requireRoom: async () => {},
      knowsTime: () => true,
      refusalOf: async () => undefined,
      bury: async () => nothing,
    });
    await delays.emitOnce();
    await shared.expectShared();
    expect(await shared.count("delayed_events")).toBe(0);
  });

  test("runs.failures", async () => {
    await shared.pile("failed_runs", 1_000, "due_at", { run_id: `'run_${greedy}_' || n` });
    shared.watch(shared.gone(`failed_runs WHERE environment_id = '${modest}'`));
    const failures = openTellFailures({
      ...{ store: shared.spied, clock, log: silentLog, knowsTime: () => true, bury: async () => nothing },
      ...{ events: { emit: async () => [] }, secretValues: async () => ({}) },
      definitionOf: async () => ({}) as FunctionDefinition,
    });
    await failures.tellOnce();
    await shared.expectShared();
    expect(await shared.count("failed_runs")).toBe(0);
  });

  const groups = () =>
    openGroups({
      announce: { changed() {}, moved() {} },
      store: shared.spied,
      clock,
      ids,
      log: silentLog,
      watch: noWatch,
      bus: { channel: () => ({ listen: nothing }) } as unknown as Bus,
      nodeId: "me",
      sources: {} as Sources,
      knowsTime: () => true,
      bury: async () => nothing,
    });

  // An environment's rows are found by its key there, and a thousand of them in a table without statistics are sorted.
  test("groups.look: silent members", async () => {
    await shared.pile(
      "group_members",
      1_000,
      "seen_at",
      { group_id: "'g'", id: `'sub_${greedy}_' || n` },
      clock.now() - 20_000,
    );
    shared.watch(shared.gone(`group_members WHERE environment_id = '${modest}'`));
    while ((await groups().lookOnce()).againInMs === 0);
    await shared.expectShared(1_100);
    expect(await shared.count("group_members")).toBe(0);
  });

  test("groups.forget", async () => {
    await shared.pile("consumer_groups", 800, "kept_until", { name: "'g' || n", id: "'grp' || n" });
    shared.watch(shared.gone(`consumer_groups WHERE environment_id = '${modest}'`));
    await groups().forgetOnce(shared.spied.write);
    await shared.expectShared(1_100);
    expect(await shared.count("consumer_groups")).toBe(0);
  });

  test("streams.purge", async () => {
    await shared.pile("streams", 800, "deleted_at", { entity_id: "'s' || n", version: "1", purge_from: "1" });
    for (const [env, many] of [[greedy, 2_500] as const, [modest, 1] as const])
      await plant(shared.bare, "events", many, {
        ...{ environment_id: `'${env}'`, position: "n", id: `'secret_${env}_' || n`, data: "'7'" },
        ...{ entity_id: "'s1'", entity_version: "n" },
      });
    await shared.bare.write((session) =>
      session.run(
        sql`UPDATE streams SET version = 2500 WHERE environment_id = ${greedy} AND entity_id = 's1'`,
      ),
    );
    const left = "streams WHERE purge_from IS NOT NULL";
    shared.watch(shared.gone(`${left} AND environment_id = '${modest}'`));
    const { forgetBytes } = openQuotas({ store: shared.spied, clock, raiseDefinitions });
    const { purgeOnce } = openStreams({ store: shared.spied, clock, forgetBytes } as unknown as StreamsDeps);
    await purgeOnce(shared.spied.write);
    await shared.expectShared(1_100);
    expect(await shared.count(left)).toBe(0);
    expect(await shared.count("events WHERE id LIKE 'secret%' AND data <> 'null'")).toBe(0);
    await shared.bare.write((session) => session.run(sql`DELETE FROM events WHERE id LIKE 'secret%'`));
  });

  const retention = () =>
    openRetention({
      store: shared.bare,
      clock: { ...clock, sleep: async () => {} },
      log: silentLog,
      metrics: noMetrics,
      kept: { events: 30 * day, runs: 30 * day },
      forgetBytes: async () => {},
      definitionOf: async () => ({}) as FunctionDefinition,
    });

  test("events.expire and runs.expire: a round is over before the greedy one's past is", async () => {
    for (const [env, many] of both(12_000)) {
      const environment_id = `'${env}'`;
      await plant(shared.bare, "environments", 1, { id: environment_id, name: environment_id });
      await plant(shared.bare, "events", many, {
        environment_id,
        position: "n",
        id: `'old_${env}_' || n`,
        at: "n",
      });
      await shared.bare.write((session) =>
        session.run(sql`UPDATE heads SET position = ${many} WHERE environment_id = ${env}`),
      );
      await plant(shared.bare, "runs", many, {
        environment_id,
        id: `'old_${env}_' || n`,
        status: "'completed'",
        ended_at: "1",
        created_at: "n",
      });
    }
    for (const [what, table] of [
      ["expireEvents", "events"],
      ["expireRuns", "runs"],
    ] as const) {
      shared.watch(shared.gone(`${table} WHERE environment_id = '${modest}' AND id LIKE 'old%'`));
      const write = shared.spied.write;
      const one = retention();
      while ((await one[what](write)).againInMs !== undefined);
      // Whoever comes behind it in the order waits for one turn.
      expect(shared.seen().servedAfter).toBeLessThan(50);
      expect(await shared.count(`${table} WHERE id LIKE 'old%'`)).toBe(0);
    }
  });

  test("events.expire: of more environments than one round visits all have their turn", async () => {
    await plant(shared.bare, "environments", 600, { id: "'many' || n", name: "'many' || n" });
    await plant(shared.bare, "heads", 600, { environment_id: "'many' || n", position: "1" });
    await plant(shared.bare, "events", 600, {
      environment_id: "'many' || n",
      position: "1",
      id: "'many' || n",
      at: "n",
    });
    const one = retention();
    for (let round = 0; round < 2; round++) await one.expireEvents(shared.bare.write);
    expect(await shared.count("events WHERE id LIKE 'many%'")).toBe(0);
    await shared.bare.write((session) =>
      session.run(sql`DELETE FROM heads WHERE environment_id LIKE 'many%'`),
    );
    await shared.bare.write((session) => session.run(sql`DELETE FROM environments WHERE id LIKE 'many%'`));
  });

  test("topics.expire", async () => {
    for (const [env, many] of both(12_000)) {
      const environment_id = `'${env}'`;
      await plant(shared.bare, "topic_heads", 1, { environment_id, position: `${many}` });
      await plant(shared.bare, "topics", 1, { environment_id, name: "'t'", message_count: `${many}` });
      await plant(shared.bare, "topic_messages", many, {
        environment_id,
        position: "n",
        topic: "'t'",
        at: "n",
      });
    }
    shared.watch(shared.gone(`topic_messages WHERE environment_id = '${modest}'`));
    const expire = openExpiry({
      store: shared.bare,
      clock: { ...clock, sleep: async () => {} },
      log: silentLog,
      keptMs: day / 24,
      floorGuards: [],
    });
    const write = shared.spied.write;
    while ((await expire(write)).againInMs !== undefined);
    expect(shared.seen().servedAfter).toBeLessThan(50);
    expect(await shared.count("topic_messages")).toBe(0);
  });

  test("push.look: none is left out because another has more functions than one node serves", async () => {
    const values = { mode: "'push'", status: "'active'", version: "1" };
    const named = { id: "'p' || n", slug: "'p' || n" };
    for (const [env, many] of both(pushFunctionsMax + 10))
      await plant(shared.bare, "functions", many, { ...values, ...named, environment_id: `'${env}'` });
    const seen: string[] = [];
    const push = openPush({
      store: shared.bare,
      clock,
      log: silentLog,
      metrics: noMetrics,
      breakers: {},
      async definitionAt(environmentId: string) {
        seen.push(environmentId);
        throw new Error("it ends here");
      },
    } as unknown as PushDeps);
    await push.lookOnce();
    expect(seen).toContain(modest);
    expect(seen.length).toBe(pushFunctionsMax);
  });

  test("tenancy.purge", async () => {
    for (const [env, many] of [
      ["env_gone_a", 60_000],
      ["env_gone_b", 1],
    ] as const) {
      await plant(shared.bare, "events", many, {
        environment_id: `'${env}'`,
        position: "n",
        id: `'${env}' || n`,
      });
      await plant(shared.bare, "deleted_environments", 1, {
        id: `'${env}'`,
        deleted_at: `${clock.now() - day + (many === 1 ? 1 : 0)}`,
      });
    }
    let left = 0;
    shared.watch(async () => {
      if (!(await shared.gone("events WHERE environment_id = 'env_gone_b'")())) return false;
      left = await shared.count("events WHERE environment_id = 'env_gone_a'");
      return true;
    });
    const purge = openPurge({ store: shared.bare, clock, metrics: noMetrics });
    const write = shared.spied.write;
    while ((await purge.duty.tick(write)).againInMs !== undefined);
    expect(left).toBeGreaterThan(5_000);
    expect(await shared.count("events WHERE environment_id LIKE 'env_gone%'")).toBe(0);
  });

  test("outbox.mirror: a slice of each log in turn, and one that cannot be read holds up none", async () => {
    for (const [env, many] of both(20_000)) {
      const values = { environment_id: `'${env}'`, position: "n", id: `'log_${env}_' || n`, data: "'{}'" };
      await plant(shared.bare, "events", many, { ...values, name: "'e'" });
      await shared.bare.write((session) =>
        session.run(sql`UPDATE heads SET position = ${many} WHERE environment_id = ${env}`),
      );
    }
    const handed: string[] = [];
    const past = openPast(shared.bare);
    let isBroken = true;
    const mirror = openMirror({
      store: shared.bare,
      clock,
      log: silentLog,
      metrics: noMetrics,
      past: {
        async between(environmentId, range, limit) {
          if (environmentId === greedy && isBroken) throw new Error("cannot be read");
          return past.between(environmentId, range, limit);
        },
      },
      target: {
        async publish(messages: readonly { subject: string }[]) {
          for (const { subject } of messages) handed.push(subject.split(".")[0]!);
          return messages.map(() => undefined);
        },
      } as never,
      connected: () => true,
      outbox: { refused: async () => {} },
      payloadBytesMax: 1_000_000,
    });
    await expect(mirror.mirrorOnce(shared.bare.write)).rejects.toThrow("cannot be read");
    expect(handed).toEqual([modest]);
    isBroken = false;
    await shared.bare.write((session) => session.run(sql`DELETE FROM mirrors`));
    handed.length = 0;
    while ((await mirror.mirrorOnce(shared.bare.write)).againInMs !== undefined);
    expect(handed.indexOf(modest)).toBeWithin(0, 101);
    expect(handed.filter((id) => id === greedy)).toHaveLength(20_000);
  });
});
