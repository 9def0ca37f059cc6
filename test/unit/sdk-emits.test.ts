import { afterEach, expect, test } from "bun:test";
import { type Client, createClient, type SvcError } from "../../src/sdk/index.ts";
import { until } from "../support/until.ts";

interface Sent {
  path: string;
  traceparent: string | null;
  events: {
    event: string;
    data?: { n?: number };
    metadata?: Record<string, unknown>;
    idempotencyKey?: string;
  }[];
}

let server: { stop(force: boolean): Promise<void> } | undefined;
afterEach(() => server?.stop(true));

/** A server that answers an event with its number, or by `answer`, and the requests that it got. */
function started(
  answer: (sent: Sent) => Response | undefined | Promise<Response | undefined> = () => undefined,
  options: { traceparent?: () => string | undefined } = {},
) {
  const requests: Sent[] = [];
  const made = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 0,
    async fetch(request) {
      const path = new URL(request.url).pathname.split("/").at(-1)!;
      const body = (await request.json()) as {
        events?: Sent["events"];
        messages?: Sent["events"];
      } & Sent["events"][number];
      const list = body.events ?? body.messages;
      const sent = { path, traceparent: request.headers.get("traceparent"), events: list ?? [body] };
      requests.push(sent);
      const results = sent.events.map((one) => ({ eventId: `evt_${one.data?.n}`, sequence: "1" }));
      return (await answer(sent)) ?? Response.json(list ? { results } : results[0]);
    },
  });
  server = made;
  return { requests, client: createClient({ url: made.url.origin, apiKey: "ifkey_test", ...options }) };
}

const emitAll = (client: Client, count: number, of: (n: number) => object = () => ({})) =>
  Promise.allSettled(Array.from({ length: count }, (_, n) => client.emit("a.b", { n }, of(n))));
const numbers = (outcomes: PromiseSettledResult<{ eventId: string }>[]) =>
  outcomes.map((one) => (one.status === "fulfilled" ? one.value.eventId : (one.reason as SvcError).code));
const all = (count: number) => Array.from({ length: count }, (_, n) => `evt_${n}`);
const refusal = (field: string) =>
  Response.json({ code: "invalid_argument", message: `${field}: no`, field }, { status: 400 });

test("emits one after the other are single requests", async () => {
  const { client, requests } = started();
  for (let n = 0; n < 5; n++) expect((await client.emit("a.b", { n })).eventId).toBe(`evt_${n}`);
  expect(requests.map(({ path }) => path)).toEqual(Array(5).fill("Emit"));
});

test("emits at once share requests, and each gets its own answer", async () => {
  const { client, requests } = started();
  expect(numbers(await emitAll(client, 300))).toEqual(all(300));
  expect(requests.length).toBeLessThan(14);
  expect(Math.max(...requests.map(({ events }) => events.length))).toBeLessThanOrEqual(100);
});

test("callers that emit again and again go together", async () => {
  const { client, requests } = started();
  const caller = async (n: number) => {
    for (let turn = 0; turn < 20; turn++) expect((await client.emit("a.b", { n })).eventId).toBe(`evt_${n}`);
  };
  await Promise.all(Array.from({ length: 64 }, (_, n) => caller(n)));
  expect(requests.length).toBeLessThan(200);
});

test("publishes at once share requests too", async () => {
  const { client, requests } = started();
  const outcomes = await Promise.allSettled(
    Array.from({ length: 300 }, (_, n) => client.publish("a", { n })),
  );
  expect(numbers(outcomes)).toEqual(all(300));
  expect(requests.length).toBeLessThan(14);
  expect(new Set(requests.map(({ path }) => path))).toEqual(new Set(["Publish", "PublishBatch"]));
});

test("one that is refused fails alone", async () => {
  const { client, requests } = started(({ events }) => {
    const at = events.findIndex(({ data }) => data?.n === 7);
    return at < 0 ? undefined : refusal(events.length === 1 ? "event" : `events[${at}].event`);
  });
  const outcomes = await emitAll(client, 20);
  expect(numbers(outcomes)).toEqual(all(20).with(7, "invalid_argument"));
  expect((outcomes[7] as PromiseRejectedResult).reason.field).toBe("event");
  expect(requests.filter(({ events }) => events.length === 1).length).toBeGreaterThan(1);
});

test("a batch without an answer is repeated for those with a key alone", async () => {
  const { client, requests } = started(({ path }) =>
    path === "TriggerBatch" ? new Response("gone", { status: 502 }) : undefined,
  );
  const outcomes = await emitAll(client, 12, (n) => (n % 2 === 0 ? { idempotencyKey: `k${n}` } : {}));
  const batched = requests.filter(({ path }) => path === "TriggerBatch").flatMap(({ events }) => events);
  const lost = batched.filter((one) => one.idempotencyKey === undefined).map(({ data }) => data!.n!);
  expect(lost.length).toBeGreaterThan(0);
  for (const [n, one] of outcomes.entries())
    expect(one.status).toBe(lost.includes(n) ? "rejected" : "fulfilled");
});

test("large ones share no request beyond its size", async () => {
  const { client, requests } = started();
  const note = "x".repeat(600_000);
  await Promise.all(Array.from({ length: 6 }, (_, n) => client.emit("a.b", { n, note })));
  expect(requests.map(({ events }) => events.length)).toEqual(Array(6).fill(1));
});

test("each keeps its trace and its metadata", async () => {
  const { client, requests } = started();
  const trace = (n: number) => `00-${`${n + 1}`.padStart(32, "0")}-00f067aa0ba902b7-01`;
  await emitAll(client, 10, (n) => ({ traceparent: trace(n), metadata: { by: n } }));
  for (const { path, traceparent, events } of requests)
    for (const { data, metadata } of events) {
      expect(metadata?.by).toBe(data!.n);
      expect(path === "Emit" ? traceparent : metadata?.traceparent).toBe(trace(data!.n!));
    }
});

test("a caller without a trace gets none of its neighbours'", async () => {
  let now: string | undefined;
  const { client, requests } = started(undefined, { traceparent: () => now });
  const emits = Array.from({ length: 10 }, (_, n) => {
    now = n % 2 === 0 ? `00-${`${n + 1}`.padStart(32, "0")}-00f067aa0ba902b7-01` : undefined;
    return client.emit("a.b", { n });
  });
  now = `00-${"f".repeat(32)}-00f067aa0ba902b7-01`;
  await Promise.all(emits);
  const traces = requests.flatMap(({ traceparent, events }) =>
    events.map(({ data, metadata }) => ({ n: data!.n!, trace: metadata?.traceparent ?? traceparent })),
  );
  expect(traces).toHaveLength(10);
  for (const { n, trace } of traces)
    expect(trace?.toString().slice(3, 35)).toBe(n % 2 === 0 ? `${n + 1}`.padStart(32, "0") : undefined);
});

test("an emit for later goes by itself", async () => {
  const { client, requests } = started();
  await emitAll(client, 10, () => ({ delay: "1h" }));
  expect(requests.map(({ path }) => path)).toEqual(Array(10).fill("Emit"));
});

test("none waits for requests that hang", async () => {
  const release = Promise.withResolvers<void>();
  const { client, requests } = started(async ({ events }) => {
    if (events[0]!.data!.n! < 2) await release.promise;
    return undefined;
  });
  const outcomes = emitAll(client, 10);
  await until(() => requests.flatMap(({ events }) => events).length === 10, {
    about: "all of them to be sent",
  });
  release.resolve();
  expect(numbers(await outcomes)).toEqual(all(10));
});

test("what JSON cannot hold fails alone and is not sent", async () => {
  const { client } = started();
  const outcomes = await Promise.allSettled([
    ...Array.from({ length: 5 }, (_, n) => client.emit("a.b", { n })),
    client.emit("a.b", { n: 1n }),
  ]);
  expect(numbers(outcomes)).toEqual([...all(5), "invalid_argument"]);
});
