import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import type { EngineName } from "../support/engines.ts";
import { until } from "../support/until.ts";
import { type HookWorld, startHookWorld } from "./hook-world.ts";

const eventName = "hook.sent";
const emitMax = 50;
/** As the service ships it, an endpoint is tried again after 5 s: the window is shortened as this is. */
const shippedRetryMs = 5_000;
const shippedWindowMs = 600_000;

export interface HooksOutOptions {
  engine: EngineName;
  events: number;
  /** For so long one endpoint refuses everything; ten minutes, shortened as the pauses between tries are. */
  failsMs: number;
  kills: number;
  /** Closes the breaker of the mended endpoint, which would wait for half a minute. */
  isHurried?: boolean;
  say?: ((line: string) => void) | undefined;
  /** Moves an endpoint on past what it has not sent, to see that this is found. */
  isPlanted?: boolean;
}

export interface HooksOutOutcome {
  breaches: string[];
  events: number;
  /** Calls that came again although they had been taken: they were in the air when a node died. */
  again: number;
  refused: number;
  kills: number;
  /** Of what was sent to endpoints that do not fail, from the end of the emits. */
  quickDoneMs: number;
}

type Kind = "quick" | "slow" | "failing";
const kinds: readonly Kind[] = ["quick", "quick", "slow", "failing"];
const slowMs = 20;

/** One endpoint's receiver, and what it took in the order in which it came. */
interface Receiver {
  kind: Kind;
  taken: number[];
  refused: number;
}

/** Where endpoints call: one path each. */
function openReceivers() {
  let isFailing = true;
  const all: Receiver[] = kinds.map((kind) => ({ kind, taken: [], refused: 0 }));
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const one = all[Number(new URL(request.url).pathname.slice(1))]!;
      const { data } = (await request.json()) as { data: { n: number } };
      if (one.kind === "slow") await Bun.sleep(slowMs);
      if (one.kind === "failing" && isFailing) {
        one.refused++;
        return new Response("later", { status: 503 });
      }
      // Who has hung up hears of no answer.
      if (!request.signal.aborted) one.taken.push(data.n);
      return new Response(null, { status: 204 });
    },
  });
  return {
    all,
    url: (at: number) => `http://127.0.0.1:${server.port}/${at}`,
    mend: () => {
      isFailing = false;
    },
    stop: () => server.stop(true),
  };
}

/**
 * Events are sent to endpoints of which one is slow and one refuses all for a while, and nodes are killed meanwhile: each gets all
 * in the order of the log, and once more only what was in the air.
 */
export async function runHooksOut(options: HooksOutOptions): Promise<HooksOutOutcome> {
  const { engine, events, failsMs, kills, say = () => {} } = options;
  const receivers = openReceivers();
  const world = await startHookWorld(engine, {
    ...{ pushAllowPrivate: "127.0.0.0/8", webhookTimeoutMs: 1_000, poolSize: 8 },
    webhookRetryMs: Math.max(10, Math.round((failsMs * shippedRetryMs) / shippedWindowMs)),
  });
  const breaches: string[] = [];
  try {
    const ids: string[] = [];
    for (const [at, kind] of kinds.entries()) {
      const input = { name: kind, url: receivers.url(at), pattern: `events:${eventName}` };
      const made = await world.surely("WebhookEndpointService", "CreateWebhookEndpoint", input);
      ids.push((made as unknown as { id: string }).id);
    }
    const startedAt = performance.now();
    let killed = 0;
    const harm = async () => {
      for (; killed < kills; killed++) {
        const wanted = Math.floor(((killed + 1) * events) / (kills + 1));
        const isReached = () => receivers.all[0]!.taken.length >= wanted;
        await until(isReached, { about: "deliveries", deadlineMs: 300_000, everyMs: 2 });
        say(`a node is killed at ${wanted} deliveries`);
        await world.killNode();
      }
    };
    await Promise.all([emit(world, events), harm()]);
    const emittedAt = performance.now();
    const [failing, slow] = [receivers.all.find(({ kind }) => kind === "failing")!, receivers.all[2]!];
    const quick = receivers.all.filter(({ kind }) => kind === "quick");
    const isDone = (ones: readonly Receiver[]) => () =>
      ones.every(({ taken }) => new Set(taken).size === events);
    await until(isDone(quick), { about: "quick endpoints to have all", deadlineMs: 300_000 });
    const quickDoneMs = Math.round(performance.now() - emittedAt);
    // What is slow, or refuses, has held up nobody: it is still behind.
    if (isDone([slow])() || failing.taken.length > 0) breaches.push("the quick ones were done last");
    if (options.isPlanted) {
      await world.surely("WebhookEndpointService", "PauseWebhookEndpoint", { id: ids[3] });
      const failingEventId = await until(
        async () => {
          const { body } = await world.api.rpc("WebhookEndpointService", "GetWebhookEndpoint", {
            id: ids[3],
          });
          return body.failingEventId as string | undefined;
        },
        { about: "an event to fail" },
      );
      const skipped = { id: ids[3], skipEventId: failingEventId };
      await world.surely("WebhookEndpointService", "ResumeWebhookEndpoint", skipped);
    }
    await Bun.sleep(Math.max(0, failsMs - (performance.now() - startedAt)));
    receivers.mend();
    if (options.isHurried) await hurry(world, { id: ids[3]!, url: receivers.url(3) });
    say(`the failing endpoint is mended, after ${failing.refused} calls`);
    await until(() => isDone(receivers.all)() || options.isPlanted, {
      ...{ about: "all endpoints to have all", deadlineMs: 3 * failsMs + 60_000 },
    }).catch((error: Error) => breaches.push(error.message));
    breaches.push(...(await world.unsound()));
    const order = await world.afterwards(orderOf);
    for (const one of receivers.all) breaches.push(...judged(one, order, kills));
    const again = receivers.all.reduce((sum, { taken }) => sum + taken.length - new Set(taken).size, 0);
    return { breaches, events: order.length, again, refused: failing.refused, kills, quickDoneMs };
  } finally {
    receivers.stop();
    await world.stop();
  }
}

async function hurry({ api }: HookWorld, { id, url }: { id: string; url: string }): Promise<void> {
  const key = Buffer.from(`${id}|${url}`).toString("base64url");
  const close = async () =>
    (await api.api(`/api/v1/circuit-breakers/${key}/reset`, { method: "POST" })).status === 200;
  await until(close, { about: "the breaker to be closed", deadlineMs: 60_000, everyMs: 50 });
}

async function emit(world: HookWorld, events: number): Promise<void> {
  for (let from = 0; from < events; from += emitMax) {
    const list = Array.from({ length: Math.min(emitMax, events - from) }, (_, at) => {
      const n = from + at;
      return { event: eventName, data: { n }, idempotencyKey: `n-${n}` };
    });
    await world.surely("SvcService", "TriggerBatch", { events: list });
  }
}

async function orderOf(store: Store): Promise<number[]> {
  const rows = await store.all<{ data: string }>(sql`SELECT data FROM events WHERE name = ${eventName}
    ORDER BY position`);
  return rows.map(({ data }) => (JSON.parse(data) as { n: number }).n);
}

/** All, in the order of the log; after each kill once more what its sender had not saved. */
function judged({ kind, taken }: Receiver, order: readonly number[], kills: number): string[] {
  const breaches: string[] = [];
  const times = new Map<number, number>();
  for (const n of taken) times.set(n, (times.get(n) ?? 0) + 1);
  const firsts = [...times.keys()];
  const at = firsts.findIndex((n, place) => n !== order[place]);
  if (at >= 0) breaches.push(`${kind}: ${firsts[at]} came in the place of ${order[at]}`);
  if (firsts.length !== order.length) breaches.push(`${kind}: ${firsts.length} of ${order.length} came`);
  for (const [n, count] of times)
    if (count > 1 + kills) breaches.push(`${kind}: ${n} came ${count} times in ${kills} kills`);
  const again = taken.length - times.size;
  if (again > kills * unsavedMax)
    breaches.push(`${kind}: ${again} came again, which were not in the air in ${kills} kills`);
  return breaches;
}

/** A sender saves after 20 deliveries: what it has in the air beside them is one call. */
const unsavedMax = 21;
