import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Visitor } from "../support/every-route.ts";
import { type FurnishedOrg, furnishOrg } from "../support/furnished-org.ts";
import { joinGroup, type TestMember } from "../support/group-member.ts";
import { nobodys } from "../support/intruder.ts";
import { listen, type RawStream } from "../support/raw-stream.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

const nobodysEnvironment = "env_00000000000000000000000000";

describe.each(engines)("an intruder at another org's consumer groups, on %s", (engine) => {
  let server: TestServer;
  let victim: FurnishedOrg;
  let intruder: FurnishedOrg;
  let member: TestMember;
  /** Of the victim's group. */
  let groupId: string;
  let memberId: string;
  /** Of what its member holds. */
  let held: string[];
  let secrets: string[];

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 1 } });
    victim = await furnishOrg(server, "victim");
    intruder = await furnishOrg(server, "intruder");
    const settings = { pattern: "topic:same.topic", ackMode: "ACK_MODE_MANUAL", redeliverDelayMs: 3_600_000 };
    for (const org of [victim, intruder]) {
      // The furnished one has other settings.
      await groups(org, "DeleteConsumerGroup", { name: "same" });
      await groups(org, "CreateConsumerGroup", { name: "same", ...settings });
    }
    // One that the intruder has no namesake of.
    await groups(victim, "CreateConsumerGroup", { name: "victims-own", ...settings });
    groupId = (await groups(victim, "GetConsumerGroup", { name: "same" })).id;
    const seated = { groupName: "same", consumerId: "consumer-of-victim" };
    member = joinGroup({ url: server.url, key: victim.key }, seated);
    await until(async () => (await groups(victim, "GetConsumerGroup", { name: "same" })).memberCount === 1, {
      about: "the victim's member",
      deadlineMs: 5_000,
    });
    for (let n = 0; n < 3; n++) await publish(victim, n);
    held = (await member.wait(3)).map(({ eventId }) => eventId);
    const { store } = server.running.domain;
    const [row] = await store.all<{ id: string }>(
      sql`SELECT id FROM group_members WHERE group_id = ${groupId}`,
    );
    memberId = row!.id;
    secrets = [victim.marker, "consumer-of-victim", groupId, memberId, ...held];
  }, 120_000);
  afterAll(async () => {
    await member?.leave();
    await server.stop();
  });

  const groups = ({ api }: FurnishedOrg, method: string, body: object) =>
    api(`/svc.v1.PubSubService/${method}`, { body });
  const publish = (org: FurnishedOrg, n: number) =>
    groups(org, "Publish", { topic: "same.topic", data: { marker: org.marker, n } });
  const nobodysEvent = () => nobodys(held[0]!);
  /** What stands in a text of the victim's, apart from what the intruder itself has sent. */
  const leaks = (text: string, sent: string) =>
    secrets.filter((secret) => !sent.includes(secret) && text.includes(secret));

  /** All that is kept of the victim's groups, and who sits there. */
  async function state(): Promise<string> {
    const { store } = server.running.domain;
    const of = (table: string, columns: string) =>
      store.all(
        sql`SELECT ${sql.raw(columns)} FROM ${sql.raw(table)} WHERE environment_id = ${victim.environmentId} ORDER BY 1, 2`,
      );
    const all = [
      await of("consumer_groups", "*"),
      await of(
        "group_deliveries",
        "group_id, position, event_id, attempt, spent_count, lost_count, member_id, due_at",
      ),
      await of("group_members", "group_id, id, consumer_id, client_id, node_id, joined_at"),
      await groups(victim, "ListConsumerGroups", {}),
    ];
    return JSON.stringify(all);
  }

  /** Nothing was told, nothing has changed, nothing comes again. */
  async function unnoticed(before: string): Promise<void> {
    await server.running.tick("groups.look");
    expect(await state()).toBe(before);
    expect(member.got.map(({ eventId, deliveryAttempt }) => [eventId, deliveryAttempt])).toEqual(
      held.map((eventId) => [eventId, 1]),
    );
  }

  const everyone = (): [string, Visitor][] => Object.entries(intruder.visitors);
  /** Those who may take part in groups and acknowledge: a viewer only reads. */
  const participants = () => everyone().filter(([who]) => who !== "viewer");
  async function ask({ headers, query = "" }: Visitor, method: string, body: object, environment?: string) {
    const answer = await fetch(`${server.url}/svc.v1.PubSubService/${method}${query}`, {
      method: "POST",
      headers: {
        ...headers,
        "content-type": "application/json",
        ...(environment !== undefined && { "x-svc-environment": environment }),
      },
      body: JSON.stringify(body),
    });
    return { status: answer.status, text: `${answer.status} ${await answer.text()}` };
  }
  async function joined(visitor: Visitor, body: object, environment?: string): Promise<string> {
    const { headers, query } = visitor;
    const stream = listen(
      server.url,
      "JoinConsumerGroup",
      {
        headers: { ...headers, ...(environment !== undefined && { "x-svc-environment": environment }) },
        ...(query !== undefined && { query }),
      },
      body,
    );
    await until(() => stream.heard.over, { about: `an end of ${JSON.stringify(body)}`, deadlineMs: 10_000 });
    return stream.heard.text;
  }

  test("finds none of them by id, name, namespace or environment, as if they were nobody's", async () => {
    const before = await state();
    for (const [who, visitor] of everyone()) {
      for (const [theirs, none] of [
        [groupId, nobodys(groupId)],
        ["victims-own", "nobodys-own"],
        [victim.environmentId, nobodys(victim.environmentId)],
        [`${victim.environmentId}/same`, `${nobodysEnvironment}/same`],
      ] as const) {
        for (const body of [
          (name: string) => ({ groupName: name }),
          (name: string) => ({ namespace: name, groupName: "same" }),
        ]) {
          const answer = async (name: string) =>
            (await joined(visitor, { ...body(name), consumerId: "consumer-of-victim" })).replaceAll(
              name,
              "SENT",
            );
          const text = await answer(theirs);
          expect(text, who).toContain(who === "viewer" ? "permission_denied" : "not_found");
          expect(text, who).toBe(await answer(none));
          expect(leaks(text, theirs), `${who}: ${text}`).toEqual([]);
        }
        for (const [method, input] of [
          ["GetConsumerGroup", (name: string) => ({ name })],
          [
            "UpdateConsumerGroup",
            (name: string) => ({
              group: { name, pattern: "topic:x", status: "CONSUMER_GROUP_STATUS_PAUSED" },
            }),
          ],
          ["DeleteConsumerGroup", (name: string) => ({ name })],
          ["ListConsumerGroups", (name: string) => ({ namespace: name })],
          ["AckEvent", (name: string) => ({ groupName: name, eventId: held[0], ackType: "ACK_TYPE_ACK" })],
        ] as const) {
          const answer = async (name: string) =>
            (await ask(visitor, method, input(name))).text.replaceAll(name, "SENT");
          const text = await answer(theirs);
          expect(text, `${who} ${method}`).toBe(await answer(none));
          expect(leaks(text, JSON.stringify(input(theirs))), `${who} ${method}: ${text}`).toEqual([]);
        }
      }
      const into = async (environment: string) =>
        (await joined(visitor, { groupName: "same" }, environment)).replaceAll(environment, "SENT");
      const refused = await into(victim.environmentId);
      expect(refused, who).toContain("unknown environment");
      expect(refused, who).toBe(await into(nobodysEnvironment));
    }
    await unnoticed(before);
  }, 120_000);

  test("settles nothing of theirs by knowing group, consumer and delivery", async () => {
    const before = await state();
    for (const [who, visitor] of participants())
      for (const consumerId of ["", "consumer-of-victim", memberId])
        for (const ackType of ["ACK_TYPE_ACK", "ACK_TYPE_NAK", "ACK_TYPE_TERM"])
          for (const environment of [undefined, victim.environmentId]) {
            const say = async (eventId: string) => {
              const body = { groupName: "same", consumerId, eventId, ackType, redeliverDelayMs: 1 };
              return (await ask(visitor, "AckEvent", body, environment)).text.replaceAll(eventId, "SENT");
            };
            const text = await say(held[1]!);
            expect(text.slice(0, 3), `${who}: ${text}`).toBe(
              environment === undefined ? "404" : text.slice(0, 3),
            );
            expect(text.slice(0, 1), `${who}: ${text}`).toBe("4");
            expect(text, who).toBe(await say(nobodysEvent()));
            expect(leaks(text, `${consumerId}${environment}`), `${who}: ${text}`).toEqual([]);
          }
    await unnoticed(before);
  }, 120_000);

  test("shares its own group of the same name alone, with every credential and on every transport", async () => {
    const before = await state();
    const streams: { who: string; stream: RawStream }[] = [];
    for (const [who, { headers, query }] of participants()) {
      const way = { headers, ...(query !== undefined && { query }) };
      // As the very consumer that holds the victim's.
      const asked = {
        groupName: "same",
        consumerId: "consumer-of-victim",
        clientId: memberId,
        withStart: true,
      };
      streams.push({ who, stream: listen(server.url, "JoinConsumerGroup", way, asked) });
      const options = { consumerGroup: "subscribed", replay: 100, includeMetadata: true };
      const subscribed = { pattern: "topic:same.topic", options };
      streams.push({ who: `${who}, subscribed`, stream: listen(server.url, "Subscribe", way, subscribed) });
    }
    const socket = await openSocket(server.url, { key: intruder.key });
    const options = { consumerGroup: "victims-own", replay: 100, includeMetadata: true };
    // Its own from now on, of the same name.
    expect((await socket.subscribe("topic:same.topic", options)).status).toBe("ok");
    const own = (name: string, count: number) =>
      until(async () => ((await groups(intruder, "GetConsumerGroup", { name })).memberCount ?? 0) === count, {
        about: `${count} members of ${name}`,
        deadlineMs: 10_000,
      });
    const count = participants().length;
    await Promise.all([own("same", count), own("subscribed", count), own("victims-own", 1)]);
    for (let n = 0; n < 10 * count; n++) await publish(intruder, n);
    const times = (text: string) => text.split(intruder.marker).length - 1;
    await until(
      () =>
        streams.reduce((sum, { stream }) => sum + times(stream.heard.text), 0) >= 20 * count &&
        socket.of("event").length >= 10 * count,
      { about: "all of its own", deadlineMs: 20_000 },
    );
    for (const { who, stream } of streams) {
      expect(stream.heard.over, who).toBe(false);
      expect(leaks(stream.heard.text, `consumer-of-victim ${memberId}`), who).toEqual([]);
    }
    expect(leaks(socket.texts.join("\n"), "")).toEqual([]);
    await unnoticed(before);
    for (const { stream } of streams) stream.cut();
    socket.close();
    await Promise.all([own("same", 0), own("victims-own", 0)]);
    await unnoticed(before);
  }, 120_000);

  test("the victim goes on: what it holds is its own to settle, and what is new comes", async () => {
    for (const eventId of held)
      await groups(victim, "AckEvent", {
        groupName: "same",
        consumerId: "consumer-of-victim",
        eventId,
        ackType: "ACK_TYPE_ACK",
      });
    await publish(victim, 3);
    await member.wait(4);
    expect(member.numbers()).toEqual([0, 1, 2, 3]);
  }, 120_000);
});
