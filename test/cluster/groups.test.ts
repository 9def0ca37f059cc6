import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { AckType } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { joinGroup, pubsubClient, type TestMember } from "../support/group-member.ts";
import { type LivedTime, livedTime } from "../support/lived.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { isNight } from "../support/night.ts";
import { type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** Answers and deliveries come over connections of their own: what left a node first may be read later, in lived time. */
const readMs = 1_000;

/** What was given, and acknowledged: each attempt comes once, and none comes, or is held, behind an acknowledgement. */
interface Book {
  /** Numbers of messages, by the ids of their events. */
  seen: Map<string, number>;
  attempts: Set<string>;
  /** When the acknowledgement was answered, by the event's id. */
  acked: Map<string, number>;
  again: string[];
}

/**
 * Longer than any acknowledgement takes: no delivery goes again while one of it is under way. What a node takes with it comes
 * again when it is missed, which is sooner.
 */
const holdMs = 45_000;

describe("a consumer group over three nodes", () => {
  let home: Home;
  let nats: NatsServer;
  let nodes: SpawnedServer[];
  let time: LivedTime;
  const members: TestMember[] = [];

  beforeAll(async () => {
    nats = await startNats();
    home = await makeHome("postgres");
    nodes = [];
    const node = (nodeId: string) =>
      spawnServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId } });
    // The first alone: it lands the migrations and writes the key file.
    nodes.push(await node("a"));
    nodes.push(...(await Promise.all(["b", "c"].map(node))));
    time = await livedTime();
  }, 90_000);
  afterAll(async () => {
    await time?.stop();
    await Promise.all(members.map((member) => member.leave()));
    await Promise.all(nodes.map((node) => node.stop()));
    await nats?.stop();
    await home?.remove();
  }, 120_000);

  const key = () => nodes[1]!.adminKey;
  const call = (method: string, body: object) => nodes[1]!.rpc("PubSubService", method, body);

  /** A consumer that acknowledges what it gets over any node that answers, and joins again wherever it can. */
  function consumer(book: Book, name: string, group: string, at: number) {
    let stopped = false;
    let member: TestMember | undefined;
    const acks = new Set<Promise<void>>();
    const ack = async (eventId: string, deliveryAttempt: number, wait: number) => {
      for (let tries = wait; !stopped; tries++) {
        const client = pubsubClient(nodes[tries % 3]!.url, key());
        const request = { groupName: group, consumerId: name, eventId, ackType: AckType.ACK };
        const askedAt = time.now();
        const refused = await client.ackEvent(request, { timeoutMs: 2_000 }).then(
          () => undefined,
          (error) => error as { code: number },
        );
        if (!refused && askedAt > (book.acked.get(eventId) ?? Number.POSITIVE_INFINITY))
          book.again.push(`${eventId} ${deliveryAttempt} was held after its acknowledgement`);
        if (!refused) book.acked.set(eventId, time.now());
        // Not held any more (5), or by another consumer (9): somebody else's, or an earlier try has done it.
        if (!refused || refused.code === 5 || refused.code === 9) return;
        await Bun.sleep(50);
      }
    };
    const running = (async () => {
      for (let place = at; !stopped; place++) {
        const { url } = nodes[place % 3]!;
        // Reads at once: what waits unread in a connection has been given already.
        member = joinGroup({ url, key: key() }, { groupName: group, consumerId: name }, (event) => {
          const { eventId, deliveryAttempt } = event;
          const attempt = `${eventId} ${deliveryAttempt}`;
          if (book.attempts.has(attempt)) book.again.push(`${attempt} twice`);
          if (time.now() - (book.acked.get(eventId) ?? time.now()) > readMs)
            book.again.push(`${attempt} after it was acknowledged`);
          book.attempts.add(attempt);
          const { n } = event.data as { n: number };
          book.seen.set(eventId, n);
          acks.add(ack(eventId, deliveryAttempt, n));
        });
        members.push(member);
        await member.over;
        await Bun.sleep(100);
      }
    })();
    return {
      settled: () => Promise.all(acks),
      async stop(): Promise<void> {
        stopped = true;
        await member?.leave();
        await running;
        await Promise.all(acks);
      },
    };
  }

  const logs = [
    ["events:work.>", "events"],
    ["topic:work.>", "topics"],
  ] as const;
  test.each(isNight ? logs : logs.slice(0, 1))(
    "%s: every message is handled, acknowledged ones never again, whatever dies",
    async (pattern, name) => {
      const made = await call("CreateConsumerGroup", {
        name,
        pattern,
        ackMode: "ACK_MODE_MANUAL",
        redeliverDelayMs: holdMs,
        maxRedeliveries: 1_000,
        maxInflight: 50,
      });
      expect(made.status).toBe(200);
      const book: Book = { seen: new Map(), attempts: new Set(), acked: new Map(), again: [] };
      const consumers = [0, 1, 2].map((at) => consumer(book, `${name}-${at}`, name, at));
      await until(async () => (await call("GetConsumerGroup", { name })).body.memberCount === 3, {
        about: "three members",
      });
      let sent = 0;
      const send = async (count: number) => {
        for (let left = count; left > 0; left--) {
          const n = ++sent;
          const answer =
            name === "topics"
              ? await call("Publish", { topic: `work.t${n % 3}`, data: { n } })
              : await nodes[1]!.rpc("SvcService", "Emit", { event: `work.t${n % 3}`, data: { n } });
          expect(answer.status).toBe(200);
        }
      };
      await send(100);
      const [first] = nodes;
      await Promise.all([send(100), Bun.sleep(100).then(() => first!.kill9())]);
      await nats.kill9();
      await send(100);
      await first!.restart();
      await nats.restart({ wipe: true });
      await send(100);
      // A node frozen in the middle of it is taken for dead; when it wakes, what it was to send is none of its business any more.
      const frozen = nodes[2]!.pid();
      await Promise.all([send(60), Bun.sleep(50).then(() => process.kill(frozen, "SIGSTOP"))]);
      await until(async () => ((await call("GetConsumerGroup", { name })).body.memberCount ?? 0) < 3, {
        about: "the frozen member to be dismissed",
        deadlineMs: 30_000,
        everyMs: 100,
      });
      await send(30);
      process.kill(frozen, "SIGCONT");
      await send(40);
      const numbers = () => new Set(book.seen.values());
      await until(
        async () =>
          numbers().size === sent &&
          (await call("GetConsumerGroup", { name })).body.inflightCount === undefined,
        { about: "everything to be handled", deadlineMs: 60_000, everyMs: 100 },
      );
      // Every attempt that came has been answered by then, so that each is judged.
      await Promise.all(consumers.map((one) => one.settled()));
      expect([...numbers()].sort((a, b) => a - b)).toEqual(Array.from({ length: sent }, (_, at) => at + 1));
      expect(book.again).toEqual([]);
      const { body } = await call("GetConsumerGroup", { name });
      expect([body.givenUpCount, body.droppedCount]).toEqual([undefined, undefined]);
      await Promise.all(consumers.map((one) => one.stop()));
    },
    180_000,
  );
});
