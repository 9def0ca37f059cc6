import { createHmac } from "node:crypto";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { percentile } from "../bench/figures.ts";
import { type Chance, chanceOf } from "../support/chance.ts";
import type { EngineName } from "../support/engines.ts";
import { until } from "../support/until.ts";
import { type HookWorld, startHookWorld } from "./hook-world.ts";

const callers = 20;
const sourceCount = 4;
const secret = "a secret of the provider";
const prefix = "hooked";
const repeatedShare = 0.1;
const forgedShare = 0.05;

export interface HooksInOptions {
  engine: EngineName;
  /** Requests in all: repeats and forged ones are among them. */
  deliveries: number;
  /** How often a node and the database are killed, in turn. */
  kills: number;
  seed: string;
  say?: ((line: string) => void) | undefined;
  /** Deletes an accepted event at the end, to see that this is found. */
  isPlanted?: boolean;
}

export interface HooksInOutcome {
  breaches: string[];
  accepted: number;
  repeated: number;
  forged: number;
  /** Requests that got no answer, or one that says to come again: they were sent once more, as providers do. */
  sentAgain: number;
  kills: number;
  perS: number;
  p50Ms: number;
  p99Ms: number;
  mostMs: number;
}

interface Source {
  id: string;
  ingest_token: string;
}

/** What a provider was answered for one id of its own. */
interface Told {
  eventId: string;
  source: number;
}

const signed = (body: string, key: string) => createHmac("sha256", key).update(body).digest("hex");

/** One provider's requests; each is sent until it is answered for good. */
class Provider {
  readonly told = new Map<string, Told>();
  readonly forged: string[] = [];
  readonly tookMs: number[] = [];
  readonly breaches: string[] = [];
  repeated = 0;
  sentAgain = 0;
  readonly #number: number;
  readonly #chance: Chance;
  readonly #sources: readonly Source[];
  readonly #url: string;

  constructor(number: number, chance: Chance, world: { sources: readonly Source[]; url: string }) {
    this.#number = number;
    this.#chance = chance;
    this.#sources = world.sources;
    this.#url = world.url;
  }

  async send(n: number): Promise<void> {
    const draw = this.#chance.number();
    const known = [...this.told.keys()].at(-1 - this.#chance.between(0, 20));
    if (draw < repeatedShare && known !== undefined) {
      this.repeated++;
      return this.#deliver(known, this.told.get(known)!.source);
    }
    const id = `p${this.#number}-${n}`;
    const source = this.#chance.between(0, sourceCount - 1);
    if (draw > 1 - forgedShare) {
      this.forged.push(id);
      const status = await this.#ask(id, source, "somebody else's").then((answer) => answer.status);
      if (status !== 401) this.breaches.push(`${id}, which is forged, was answered ${status}`);
      return;
    }
    // Some providers do not wait for the answer before they try again.
    const times = this.#chance.happens(0.02) ? 2 : 1;
    await Promise.all(Array.from({ length: times }, () => this.#deliver(id, source)));
  }

  async #deliver(id: string, source: number): Promise<void> {
    const { status, body } = await this.#ask(id, source, secret);
    const eventId = body?.event_id as string | undefined;
    if (status !== 200 || eventId === undefined) {
      this.breaches.push(`${id} was answered ${status} ${JSON.stringify(body)}`);
      return;
    }
    const before = this.told.get(id);
    if (before && before.eventId !== eventId)
      this.breaches.push(`${id} was ${before.eventId}, then ${eventId}`);
    this.told.set(id, { eventId, source });
  }

  async #ask(id: string, source: number, key: string) {
    const { id: sourceId, ingest_token: token } = this.#sources[source]!;
    const body = JSON.stringify({ id, type: "sent", of: this.#number, note: "as providers send them" });
    const request = {
      ...{ method: "POST", body },
      headers: { "content-type": "application/json", "x-signature": signed(body, key) },
    };
    return until(
      async () => {
        const askedAt = performance.now();
        const url = `${this.#url}/api/v1/webhooks/${sourceId}?token=${token}`;
        const response = await fetch(url, { ...request, signal: AbortSignal.timeout(10_000) }).catch(
          () => {},
        );
        const answer = await response?.text().catch(() => {});
        if (!response || answer === undefined || response.status >= 500 || response.status === 429) {
          this.sentAgain++;
          return undefined;
        }
        this.tookMs.push(performance.now() - askedAt);
        return { status: response.status, body: JSON.parse(answer) };
      },
      { about: `an answer to ${id}`, deadlineMs: 90_000, everyMs: 50 },
    );
  }
}

/** Providers send webhooks while nodes and the database die: each id that was accepted is one event, and none is lost. */
export async function runHooksIn(options: HooksInOptions): Promise<HooksInOutcome> {
  const { engine, deliveries, kills, seed, say = () => {} } = options;
  const world = await startHookWorld(engine, { webhookRateLimit: 0, poolSize: 8 }, { killsDatabase: true });
  try {
    const sources: Source[] = [];
    for (let number = 0; number < sourceCount; number++)
      sources.push(
        (await world.surely("WebhookService", "CreateWebhookSource", {
          ...{ event_prefix: prefix, preset: "generic-hmac", verify_secret: secret },
        })) as unknown as Source,
      );
    const providers = Array.from(
      { length: callers },
      (_, number) => new Provider(number, chanceOf(`${seed}/${number}`), { sources, url: world.url }),
    );
    let sent = 0;
    const startedAt = performance.now();
    const sending = providers.map(async (provider) => {
      while (sent < deliveries) await provider.send(sent++);
    });
    await Promise.all([harm(world, { deliveries, kills, sent: () => sent, say }), ...sending]);
    const seconds = (performance.now() - startedAt) / 1_000;
    say(`${sent} requests were answered after ${Math.round(seconds)} s`);
    const breaches = [...providers.flatMap((one) => one.breaches), ...(await world.unsound())];
    const found = await world.afterwards(async (store) => {
      if (options.isPlanted) await plant(store, providers[0]!);
      return compare(store, providers);
    });
    const tookMs = providers.flatMap((one) => one.tookMs).sort((a, b) => a - b);
    const sum = (of: (provider: Provider) => number) => providers.reduce((all, one) => all + of(one), 0);
    return {
      breaches: [...breaches, ...found],
      accepted: sum(({ told }) => told.size),
      repeated: sum((one) => one.repeated),
      forged: sum(({ forged }) => forged.length),
      sentAgain: sum((one) => one.sentAgain),
      kills,
      perS: Math.round(tookMs.length / seconds),
      p50Ms: Math.round(percentile(tookMs, 0.5)),
      p99Ms: Math.round(percentile(tookMs, 0.99)),
      mostMs: Math.round(tookMs.at(-1) ?? 0),
    };
  } finally {
    await world.stop();
  }
}

async function harm(
  world: HookWorld,
  {
    deliveries,
    kills,
    sent,
    say,
  }: { deliveries: number; kills: number; sent: () => number; say: (line: string) => void },
): Promise<void> {
  for (let at = 0; at < kills; at++) {
    const wanted = ((at + 1) * deliveries) / (kills + 1);
    await until(() => sent() >= wanted, { about: "requests", deadlineMs: 900_000, everyMs: 5 });
    const isNode = at % 2 === 0;
    say(`${isNode ? "a node" : "the database"} is killed at ${sent()} requests`);
    await (isNode ? world.killNode() : world.killDatabase());
  }
}

async function plant(store: Store, { told }: Provider): Promise<void> {
  const [{ eventId }] = [...told.values()] as [Told];
  await store.write((session) => session.run(sql`DELETE FROM events WHERE id = ${eventId}`));
}

/** Each accepted id is one event, the one that was answered, with one delivery of its own; a forged one is none. */
async function compare(store: Store, providers: readonly Provider[]): Promise<string[]> {
  const breaches: string[] = [];
  const events = new Map<string, string>();
  for (let after = 0, isMore = true; isMore; ) {
    const slice = await store.all<{
      position: number;
      id: string;
      data: string;
    }>(sql`SELECT position, id, data
      FROM events WHERE name = ${`${prefix}.sent`} AND position > ${after} ORDER BY position LIMIT 20000`);
    for (const { position, id, data } of slice) {
      const external = (JSON.parse(data) as { id: string }).id;
      if (events.has(external)) breaches.push(`${external} is ${events.get(external)} and ${id}`);
      events.set(external, id);
      after = position;
    }
    isMore = slice.length > 0;
  }
  let accepted = 0;
  for (const { told, forged } of providers) {
    accepted += told.size;
    for (const [external, { eventId }] of told)
      if (events.get(external) !== eventId)
        breaches.push(`${external} was answered ${eventId}, and is ${events.get(external) ?? "lost"}`);
    for (const external of forged)
      if (events.has(external)) breaches.push(`${external}, which is forged, is an event`);
  }
  if (events.size !== accepted) breaches.push(`${accepted} ids were accepted, ${events.size} are events`);
  const [own] = await store.all<{ rows: number; events: number }>(sql`SELECT count(*) AS rows,
      count(DISTINCT event_id) AS events FROM webhook_deliveries WHERE status = 'accepted' AND is_repeat = 0`);
  if (Number(own!.rows) !== accepted || Number(own!.events) !== accepted)
    breaches.push(`${accepted} events have ${own!.rows} deliveries, of ${own!.events} events`);
  return breaches;
}
