import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  createClient,
  type Membership,
  type MembershipNotice,
  NonRetryableError,
} from "../../src/sdk/index.ts";
import { openProxy, type TcpProxy } from "../support/proxy.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("client.groups on %s", (engine) => {
  let server: TestServer;
  let proxy: TcpProxy;
  const members: Membership[] = [];
  beforeAll(async () => {
    server = await startTestServer({ engine });
    proxy = await openProxy(() => Number(new URL(server.url).port));
  }, 120_000);
  afterAll(async () => {
    await Promise.all(members.map((member) => member.leave().catch(() => {})));
    await proxy.stop();
    await server.stop();
  });

  const client = (url = server.url) => createClient({ url, apiKey: server.adminKey });
  const kept = (member: Membership) => {
    members.push(member);
    return member;
  };
  const sorted = (list: Iterable<number>) => [...list].sort((a, b) => a - b);
  const upTo = (count: number) => Array.from({ length: count }, (_, at) => at + 1);

  test("are made, read, listed, changed and deleted", async () => {
    const { groups } = client();
    const made = await groups.create("books", { pattern: "book.*", ackMode: "manual", metadata: { a: 1 } });
    expect(made).toEqual({
      id: expect.stringMatching(/^group_/),
      namespace: "default",
      name: "books",
      pattern: "events:book.*",
      ackMode: "manual",
      maxInflight: 100,
      maxRedeliveries: 3,
      redeliverDelayMs: 5_000,
      metadata: { a: 1 },
      status: "active",
      memberCount: 0,
      createdAt: expect.any(String),
      updatedAt: expect.any(String),
    });
    expect(await groups.get("books")).toEqual(made);
    const again = { pattern: "other.*", ifNotExists: true };
    expect(await groups.create("books", again)).toEqual(made);
    expect(await groups.create("books", { pattern: "x" }).catch(({ code }) => code)).toBe("already_exists");
    const changed = await groups.update("books", { filter: "data.n > 1", maxInflight: 5, status: "paused" });
    expect(changed).toMatchObject({
      filter: "data.n > 1",
      maxInflight: 5,
      status: "paused",
      pattern: "events:book.*",
    });
    const left = { pattern: undefined, maxInflight: undefined, metadata: undefined } as object;
    expect(await groups.update("books", { ...left, maxRedeliveries: 9 })).toMatchObject({
      ...{ pattern: "events:book.*", maxInflight: 5, metadata: { a: 1 }, maxRedeliveries: 9 },
    });
    await groups.create("books", { namespace: "other", pattern: "topic:x" });
    const page = await groups.list({ status: "active" });
    expect([page.totalCount, page.groups.map(({ namespace }) => namespace)]).toEqual([1, ["other"]]);
    await groups.delete("books");
    await groups.delete("books", { namespace: "other" });
    expect(await groups.get("books").catch(({ code }) => code)).toBe("not_found");
    // Nobody awaits how it ends: the log has it, and the process goes on.
    const lines: unknown[] = [];
    const unheard: unknown[] = [];
    const hear = (error: unknown) => void unheard.push(error);
    process.on("unhandledRejection", hear);
    const log = { debug() {}, info() {}, warn() {}, error: (...line: unknown[]) => void lines.push(line) };
    groups.join("books", { log }, () => {});
    await until(() => lines.length > 0, { about: "the end of the membership" });
    await new Promise((done) => setImmediate(done));
    process.off("unhandledRejection", hear);
    expect(unheard).toEqual([]);
    expect(lines).toMatchObject([["a membership of a group has ended", { group: "books" }]]);
    const nowhere = groups.join("books", { log }, () => {});
    expect(await nowhere.done.catch(({ code }) => code)).toBe("not_found");
  });

  test("members share what comes; what fails comes again, what fails for good does not", async () => {
    const { groups, publish } = client();
    await groups.create("work", {
      pattern: "topic:work.>",
      ackMode: "manual",
      redeliverDelayMs: 5_000,
      maxRedeliveries: 5,
    });
    const handled = new Map<number, number[]>();
    const notices: string[] = [];
    const onNotice = ({ type }: MembershipNotice) => void notices.push(type);
    const join = () =>
      kept(
        groups.join<{ n: number }>("work", { concurrency: 3, onNotice }, async ({ data: { n }, attempt }) => {
          await Promise.resolve();
          handled.set(n, [...(handled.get(n) ?? []), attempt]);
          if (n === 3 && attempt === 1) throw new Error("not now");
          if (n === 4) throw new NonRetryableError("never");
        }),
      );
    const both = [join(), join()];
    await Promise.all(both.map(({ ready }) => ready));
    expect((await groups.get("work")).memberCount).toBe(2);
    for (const n of upTo(20)) await publish("work.a", { n });
    await until(() => handled.size === 20 && handled.get(3)?.length === 2, {
      about: "all",
      deadlineMs: 25_000,
    });
    expect(handled.get(3)).toEqual([1, 2]);
    expect(handled.get(4)).toEqual([1]);
    await until(() => notices.filter((type) => type === "failed").length === 2, { about: "two notices" });
    await both[0]!.leave();
    expect(both[0]!.state).toBe("over");
    for (const n of [21, 22]) await publish("work.a", { n });
    await until(() => handled.size === 22, { about: "the one that is left", deadlineMs: 25_000 });
    await both[1]!.leave();
    for (const [n, attempts] of handled) if (n !== 3) expect([n, attempts]).toEqual([n, [1]]);
  }, 120_000);

  test("through lost connections nothing is left out", async () => {
    const { groups, publish } = client();
    await groups.create("rough", {
      pattern: "topic:rough",
      ackMode: "manual",
      redeliverDelayMs: 200,
      maxRedeliveries: 100,
    });
    const handled = new Set<number>();
    const member = kept(
      client(`http://127.0.0.1:${proxy.port}`).groups.join<{ n: number }>(
        "rough",
        { concurrency: 4 },
        ({ data }) => {
          handled.add(data.n);
        },
      ),
    );
    await member.ready;
    for (const n of upTo(60)) {
      await publish("rough", { n });
      if (n % 20 === 10) proxy.cut();
    }
    await until(() => handled.size === 60, { about: "all", deadlineMs: 40_000 });
    await member.leave();
  }, 120_000);

  test("who leaves ends what was begun, and settles it", async () => {
    const { groups, publish } = client();
    await groups.create("leaving", { pattern: "topic:leaving", ackMode: "manual", redeliverDelayMs: 60_000 });
    const begun = Promise.withResolvers<void>();
    const finish = Promise.withResolvers<void>();
    const first: number[] = [];
    const slow = kept(
      groups.join<{ n: number }>("leaving", {}, async ({ data }) => {
        first.push(data.n);
        begun.resolve();
        await finish.promise;
      }),
    );
    await slow.ready;
    for (const n of upTo(4)) await publish("leaving", { n });
    await begun.promise;
    const gone = slow.leave();
    finish.resolve();
    await gone;
    expect(first).toEqual([1]);
    const rest: number[] = [];
    const next = kept(groups.join<{ n: number }>("leaving", {}, ({ data }) => void rest.push(data.n)));
    await until(() => rest.length === 3, { about: "the rest", deadlineMs: 25_000 });
    expect(sorted(rest)).toEqual([2, 3, 4]);
    await next.leave();
  }, 120_000);

  test("members that come and go, in the middle of being given something, leave nothing behind", async () => {
    const { groups, publish } = client();
    await groups.create("passing", { pattern: "topic:passing", ackMode: "manual", redeliverDelayMs: 60_000 });
    const handled = new Set<number>();
    const join = () =>
      kept(groups.join<{ n: number }>("passing", { concurrency: 5 }, ({ data }) => void handled.add(data.n)));
    let sent = 0;
    for (let round = 0; round < 20; round++) {
      const member = join();
      await member.ready;
      const publishing = Promise.all(upTo(8).map(() => publish("passing", { n: ++sent })));
      // Some rounds later than others.
      for (let turn = 0; turn < round % 5; turn++) await groups.get("passing");
      await member.leave();
      await publishing;
    }
    const last = join();
    await until(() => handled.size === sent, { about: "what nobody was done with", deadlineMs: 25_000 });
    await last.leave();
  }, 120_000);

  test("where sending acknowledges, each comes once, and what the handler throws ends it", async () => {
    const { groups, publish } = client();
    await groups.create("auto", { pattern: "topic:auto" });
    const got: number[] = [];
    const member = kept(
      groups.join<{ n: number }>("auto", {}, ({ data: { n } }) => {
        got.push(n);
        if (n === 30) throw new Error("enough");
      }),
    );
    const why = member.done.catch((error) => error.message);
    await member.ready;
    for (const n of upTo(30)) await publish("auto", { n });
    expect(await why).toBe("enough");
    expect(sorted(got)).toEqual(upTo(30));
  }, 120_000);
});
