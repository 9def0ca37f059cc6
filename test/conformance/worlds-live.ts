import { expect } from "bun:test";
import { createHmac } from "node:crypto";
import { createFunction, defineTools, jsonSchema, serveTools, verifyWebhook } from "../../src/sdk/index.ts";
import { until } from "../support/until.ts";
import type { Inside } from "../support/worlds.ts";
import type { Promises } from "./worlds.ts";

const order = jsonSchema({ type: "object", properties: { id: { type: "string" } }, required: ["id"] });
const desk = defineTools("live-desk", {
  refund: { description: "Gives the money back.", input: order, run: ({ id }) => ({ refunded: id }) },
});
const closer = createFunction({ id: "live-closer" }, ({ step }) =>
  step.tool(desk.tools.refund, { id: "o-İ" }),
);

export const functionsOfLive = [closer];

/** Receives for the time of one promise. */
async function receiving<Value>(
  handle: (request: Request) => Response | Promise<Response>,
  work: (url: string) => Promise<Value>,
): Promise<Value> {
  const receiver = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: handle });
  try {
    return await work(`http://127.0.0.1:${receiver.port}`);
  } finally {
    receiver.stop(true);
  }
}

/** What comes after the subscription is ready, over that way. */
async function subscribed({ client }: Inside, over: "websocket" | "connect") {
  const name = `live.${over}`;
  const seen: unknown[] = [];
  const watch = client.subscribe(`events:${name}`, { over, filter: "data.city != 'izmir'" }, ({ data }) => {
    seen.push(data);
  });
  try {
    await watch.ready;
    for (const city of ["İzmir", "izmir", "IZMIR"]) await client.emit(name, { city });
    await until(() => seen.length >= 2, { about: `two events over ${over}` });
    expect(seen).toEqual([{ city: "İzmir" }, { city: "IZMIR" }]);
  } finally {
    watch.close();
  }
}

export const promisesOfLive: Promises = {
  "a socket brings the events that its filter lets through": (inside) => subscribed(inside, "websocket"),
  "a stream over Connect brings them too, and is ready while none come": (inside) =>
    subscribed(inside, "connect"),
  async "a subscription goes on from a place, with each event once"({ client }) {
    const emitted = await client.emitMany([1, 2, 3, 4].map((n) => ({ event: "live.placed", data: { n } })));
    const seen: unknown[] = [];
    for await (const { data } of client.subscribe("events:live.placed", { after: emitted[0]!.sequence })) {
      seen.push((data as { n: number }).n);
      if (seen.length === 3) break;
    }
    expect(seen).toEqual([2, 3, 4]);
  },
  async "messages of a topic come to who listens"({ client }) {
    const seen: unknown[] = [];
    const watch = client.subscribe("topic:live.news", {}, ({ data }) => {
      seen.push(data);
    });
    await watch.ready;
    await client.publish("live.news", { head: "ı" });
    await until(() => seen.length === 1, { about: "the message" });
    watch.close();
    expect(seen).toEqual([{ head: "ı" }]);
  },
  async "a group delivers each event to one member, and again what failed"({ client }) {
    await client.groups.create("live-group", {
      ...{ pattern: "events:live.grouped", ackMode: "manual", redeliverDelayMs: 1_500 },
    });
    const deliveries: string[] = [];
    const done = new Set<number>();
    let failed = false;
    const handler = ({ data: { n }, attempt }: { data: { n: number }; attempt: number }) => {
      deliveries.push(`${n}, attempt ${attempt}`);
      const fails = n === 2 && !failed;
      failed ||= fails;
      if (fails) throw new Error("not yet");
      done.add(n);
    };
    const members = [1, 2].map(() => client.groups.join<{ n: number }>("live-group", {}, handler));
    await Promise.all(members.map(({ ready }) => ready));
    await client.emitMany([1, 2, 3, 4, 5].map((n) => ({ event: "live.grouped", data: { n } })));
    await until(() => done.size === 5, { about: "five deliveries" });
    await Promise.all(members.map((member) => member.leave()));
    // What reaches a member or is answered too late comes again, as another attempt of one member.
    expect(deliveries.filter((delivery) => delivery.startsWith("2")).length).toBeGreaterThan(1);
    expect(deliveries).toHaveLength(new Set(deliveries).size);
  },
  async "the end of a run is told to who watches it"({ client }) {
    const ends: string[] = [];
    const watch = client.subscribe("system.run.>", {}, ({ topic }) => {
      ends.push(topic);
    });
    await watch.ready;
    const { runId } = await client.invokeFunction("run-child", { of: "watched" });
    await until(() => ends.some((topic) => topic.includes(runId) && topic.endsWith(".completed")), {
      about: "the end of the run",
    });
    watch.close();
  },
  async "a provider's signed webhook becomes one event, a forged one none"({ client, url }) {
    const secret = "It's a Secret to İ";
    const source = await client.webhooks.sources.create({
      eventPrefix: "live-hub",
      preset: "github",
      secret,
    });
    const body = JSON.stringify({ ref: "ı", n: 1 });
    const post = async (id: string, signed: string) =>
      fetch(`${url}/api/v1/webhooks/${source.id}?token=${source.ingestToken}`, {
        ...{ method: "POST", body },
        headers: {
          ...{ "content-type": "application/json", "x-github-event": "push", "x-github-delivery": id },
          "x-hub-signature-256": `sha256=${createHmac("sha256", signed).update(body).digest("hex")}`,
        },
      });
    const statuses = [
      (await post("d-1", secret)).status,
      (await post("d-1", secret)).status,
      (await post("d-2", "x")).status,
    ];
    expect(statuses).toEqual([200, 200, 401]);
    const { events } = await client.events.list({ names: ["live-hub.push"] });
    expect(events.map(({ data }) => data)).toEqual([{ ref: "ı", n: 1 }]);
  },
  async "an endpoint is sent its events in order, signed, again until it takes them"({ client }) {
    const got: { n: number; signed: boolean }[] = [];
    let fails = 1;
    let secret = "";
    const take = async (request: Request) => {
      const text = await request.text();
      const checked = verifyWebhook({ headers: request.headers, body: text, secret });
      got.push({
        n: JSON.parse(text).data.n,
        signed: await checked.then(
          () => true,
          () => false,
        ),
      });
      return new Response(null, { status: fails-- > 0 ? 500 : 204 });
    };
    await receiving(take, async (url) => {
      const made = await client.webhooks.endpoints.create({ url, pattern: "events:live.sent" });
      secret = made.secret!;
      for (let n = 1; n <= 3; n++) await client.emit("live.sent", { n });
      await until(() => got.length >= 4, { about: "four calls of the endpoint" });
      await client.webhooks.endpoints.delete(made.id);
    });
    expect(got).toEqual([1, 1, 2, 3].map((n) => ({ n, signed: true })));
  },
  async "a run calls a tool of an agent"({ client }) {
    const tools = serveTools({ tools: desk, url: undefined, client } as never);
    await receiving(tools, async (url) => {
      await tools.register(url);
      const { runId } = await client.invokeFunction("live-closer", {});
      expect((await client.waitForRun(runId)).output).toEqual({ refunded: "o-İ" });
    });
  },
};
