import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { createClient, type Place, type Subscription } from "../../src/sdk/index.ts";
import { openStore } from "../../src/store/open.ts";
import { clock, emitUntilAcked } from "../cluster/load.ts";
import { startNatsCluster } from "../support/nats.ts";
import { startPostgres } from "../support/postgres.ts";
import { callerOf, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { bearerProtocol } from "../support/sockets.ts";
import { until } from "../support/until.ts";
import { type Chance, chanceOf } from "./faults.ts";

/** What one event of the chaos is. */
interface Logged {
  /** Positions are of one of the two. */
  log: "events" | "topics";
  position: number;
  name: string;
  n: number;
}

interface Interest {
  pattern: string;
  filter?: string;
  /** Topics instead of events. */
  log?: "topics";
  /** The same, by other means. */
  wants: (event: Logged) => boolean;
}

const isWanted = (interest: Interest, one: Logged) =>
  one.log === (interest.log ?? "events") && interest.wants(one);

const interests: readonly Interest[] = [
  { pattern: "chaos.>", wants: () => true },
  { pattern: "events:chaos.*.x", wants: ({ name }) => name.endsWith(".x") },
  { pattern: "chaos.a.*", wants: ({ name }) => name.startsWith("chaos.a.") },
  { pattern: "chaos.b.y", wants: ({ name }) => name === "chaos.b.y" },
  { pattern: "chaos.>", filter: "data.n % 3 == 0", wants: ({ n }) => n % 3 === 0 },
  {
    pattern: "events:chaos.*.*",
    filter: 'topic != "events:chaos.c.x" && data.n > 100',
    wants: ({ name, n }) => name !== "chaos.c.x" && n > 100,
  },
  { pattern: "topic:chaos.>", log: "topics", wants: () => true },
  {
    pattern: "topic:chaos.*.y",
    filter: "data.n % 2 == 0",
    log: "topics",
    wants: ({ name, n }) => name.endsWith(".y") && n % 2 === 0,
  },
];

interface Reader {
  about: string;
  interest: Interest;
  /** Positions as they came, after what the reader itself leaves out. */
  got: number[];
  /** Frames that came again, of all that came. */
  repeats: number;
  moves: number;
  ready: Promise<void>;
  stop(): Promise<void>;
}

interface Nodes {
  urls: readonly string[];
  key: string;
  chance: Chance;
}

const pickOf = ({ urls, chance }: Nodes) => urls[Math.floor(chance() * urls.length)]!;
/** Until a reader turns to another node of its own accord. */
const stayMs = (chance: Chance) => 300 + chance() * 2_500;

/** A bare socket that knows its last sequence, and nothing else of what the SDK does. */
function bareReader(nodes: Nodes, interest: Interest): Reader {
  const { chance, key } = nodes;
  let last: string | undefined;
  let raw: WebSocket | undefined;
  let over = false;
  const started = Promise.withResolvers<void>();
  const reader: Reader = {
    about: `bare socket, ${interest.pattern} ${interest.filter ?? ""}`,
    interest,
    got: [],
    repeats: 0,
    moves: 0,
    ready: started.promise,
    async stop() {
      over = true;
      raw?.close();
      await Promise.race([going, Bun.sleep(5_000)]);
    },
  };

  /** One connection, until it is closed. */
  const connect = () =>
    new Promise<void>((closed) => {
      // A socket that never opened may close without a word.
      const leave = () => {
        socket.close();
        setTimeout(closed, 1_000);
      };
      const socket = new WebSocket(`${pickOf(nodes).replace("http", "ws")}/ws`, [
        "svc.v1",
        bearerProtocol(key),
      ]);
      raw = socket;
      // A node that is killed in the middle of a handshake answers nothing any more.
      let leaving = setTimeout(leave, 3_000);
      socket.onopen = () => {
        const options = {
          includeMetadata: true,
          withStart: true,
          ...(interest.filter !== undefined && { filter: interest.filter }),
          ...(last !== undefined && { startAfterSequence: last }),
        };
        socket.send(
          JSON.stringify({ type: "subscribe", subscription: { pattern: interest.pattern, options } }),
        );
      };
      socket.onmessage = ({ data }) => {
        if (raw !== socket) return;
        const frame = JSON.parse(String(data));
        if (frame.type === "subscription_result") {
          const [{ status, startSequence }] = frame.results;
          if (status !== "ok") return leave();
          last ??= startSequence as string;
          started.resolve();
          clearTimeout(leaving);
          leaving = setTimeout(leave, stayMs(chance));
        } else if (frame.type === "event") {
          const sequence = Number(frame.meta.sequence);
          // Only the frame that was under way may come again: the last one.
          if (last === `${sequence}`) reader.repeats++;
          else {
            reader.got.push(sequence);
            last = `${sequence}`;
          }
        }
      };
      socket.onclose = () => {
        clearTimeout(leaving);
        closed();
      };
    });
  const going = (async () => {
    while (!over) {
      await connect();
      reader.moves++;
      await Bun.sleep(20 + chance() * 200);
    }
  })();
  return reader;
}

/** The SDK's subscription, which finds its way back by itself, and a person who takes it elsewhere. */
function sdkReader(nodes: Nodes, interest: Interest, over: "websocket" | "connect"): Reader {
  const { chance, key } = nodes;
  let place: Place | undefined;
  let isOver = false;
  let now: Subscription | undefined;
  const started = Promise.withResolvers<void>();
  const reader: Reader = {
    about: `SDK over ${over}, ${interest.pattern} ${interest.filter ?? ""}`,
    interest,
    got: [],
    repeats: 0,
    moves: 0,
    ready: started.promise,
    async stop() {
      isOver = true;
      now?.close();
      await going;
    },
  };
  const follow = async () => {
    const client = createClient({ url: pickOf(nodes), apiKey: key });
    const bufferMax = chance() < 0.3 ? 5 : 1_000;
    const options = { over, after: place, bufferMax, ...(interest.filter && { filter: interest.filter }) };
    const subscription = client.subscribe<string>(interest.pattern, options);
    now = subscription;
    subscription.ready.then(started.resolve, () => {});
    // Before there is a place the first node must be waited for.
    const leaving = setTimeout(() => (place ?? subscription.place) && subscription.close(), stayMs(chance));
    for await (const { sequence } of subscription) {
      reader.got.push(sequence!);
      if (isOver) break;
    }
    clearTimeout(leaving);
    place = subscription.place ?? place;
  };
  const going = (async () => {
    for (; !isOver; reader.moves++) await follow();
  })();
  return reader;
}

export interface ReadersOptions {
  events: number;
  readers: number;
  seed: number;
  say?: (line: string) => void;
}

export interface ReadersOutcome {
  events: number;
  deliveries: number;
  moves: number;
  repeats: number;
  faults: number;
  breaches: string[];
}

/** What a reader got, beside what the log has for it. */
export function breachOf(
  { about, interest, got }: Pick<Reader, "about" | "interest" | "got">,
  log: readonly Logged[],
): string | undefined {
  const wanted = log.filter((one) => isWanted(interest, one)).map(({ position }) => position);
  const at = wanted.findIndex((position, place) => got[place] !== position);
  if (at < 0 && got.length === wanted.length) return undefined;
  const place = at < 0 ? wanted.length : at;
  return `${about}: ${got.length} of ${wanted.length}, at ${place} got ${got.slice(place, place + 3)} and not ${wanted.slice(place, place + 3)}`;
}

const callers = 12;
/** Every fault once while so many events flow, or so. */
const eventsARound = 3_000;
/** The last events must have come so long after everything is well again. */
const settleMs = 30_000;

/**
 * Readers that turn from node to node with their last sequence while events flow, nodes are killed, NATS servers are killed
 * one by one and at last wiped: each of them must have the log, its part of it, in order, without a gap or a repeat.
 */
export async function runReaders({
  events,
  readers: count,
  seed,
  say = () => {},
}: ReadersOptions): Promise<ReadersOutcome> {
  const chance = chanceOf(seed);
  const [postgres, nats] = await Promise.all([startPostgres(), startNatsCluster()]);
  const databaseUrl = await postgres.createDatabase();
  const home = await makeHomeAt(databaseUrl);
  const servers: SpawnedServer[] = [];
  const readers: Reader[] = [];
  const store = await openStore({ clock, log: silentLog, databaseUrl, file: "", poolSize: 2 });
  try {
    for (let place = 1; place <= 3; place++)
      servers.push(
        await spawnServer({
          engine: "postgres",
          nats: nats.url,
          home,
          settings: { nodeId: `node-${place}`, drainNoticeMs: 200, drainMs: 2_000, poolSize: 8 },
        }),
      );
    const key = servers[0]!.adminKey;
    const nodes: Nodes = { urls: servers.map(({ url }) => url), key, chance };
    for (let place = 0; place < count; place++) {
      const interest = interests[place % interests.length]!;
      if (place % 2 === 0) readers.push(bareReader(nodes, interest));
      else readers.push(sdkReader(nodes, interest, place % 4 === 1 ? "websocket" : "connect"));
    }
    await Promise.all(readers.map(({ ready }) => ready));
    say(`${count} readers at three nodes`);

    let isBroken = true;
    let faults = 0;
    const shaken = async (what: string, work: () => Promise<unknown>) => {
      say(what);
      await work();
      faults++;
      await Bun.sleep(300 + chance() * 700);
    };
    const shake = async () => {
      do {
        for (const server of servers)
          await shaken("a node is killed", async () => {
            await server.kill9();
            await Bun.sleep(chance() * 1_000);
            await server.restart();
          });
        for (const server of nats.servers)
          await shaken("a NATS server is killed", async () => {
            await server.kill9();
            await Bun.sleep(chance() * 1_000);
            await server.restart();
          });
        await shaken("all of NATS is wiped", async () => {
          await Promise.all(nats.servers.map((server) => server.kill9()));
          await Promise.all(nats.servers.map((server) => server.restart({ wipe: true })));
        });
        await shaken("a node is replaced", async () => {
          const server = servers[Math.floor(chance() * servers.length)]!;
          await server.terminate();
          await server.restart();
        });
      } while (sent < events - eventsARound);
      isBroken = false;
    };
    let sent = 0;
    const tenant = { environmentId: "env_default", key };
    const { rpc } = callerOf(
      () => pickOf(nodes),
      () => key,
    );
    const publishUntilAcked = (message: object) =>
      until(async () => (await rpc("PubSubService", "Publish", message)).status === 200, {
        about: "a publish to be acked",
        deadlineMs: 60_000,
        everyMs: 50,
      });
    const caller = async () => {
      // Also when there are more faults than events: something must flow while they happen.
      while (sent < events || isBroken) {
        const n = sent++;
        const name = `chaos.${"abc"[n % 3]}.${"xy"[Math.floor(n / 3) % 2]}`;
        const told = { data: { n }, idempotencyKey: `chaos-${n}` };
        if (n % 4 === 3) await publishUntilAcked({ topic: name, ...told });
        else
          await emitUntilAcked(
            { event: name, ...told },
            { url: () => pickOf(nodes), tenant, triesMax: 2_000 },
          );
        await Bun.sleep(10);
      }
    };
    await Promise.all([shake(), ...Array.from({ length: callers }, caller)]);
    say(`${sent} events emitted`);

    const rows = await store.all<{ log: Logged["log"]; position: number; name: string; data: string }>(
      sql`SELECT 'events' AS log, position, name, data FROM events WHERE environment_id = 'env_default'
        UNION ALL SELECT 'topics' AS log, position, topic AS name, data FROM topic_messages
        WHERE environment_id = 'env_default' ORDER BY 1, 2`,
    );
    const log = rows
      .filter(({ name }) => name.startsWith("chaos."))
      .map(({ data, ...one }) => ({ ...one, n: (JSON.parse(data) as { n: number }).n }));
    const last = (reader: Reader) => log.findLast((one) => isWanted(reader.interest, one))?.position;
    const behind = () => readers.filter((reader) => reader.got.at(-1) !== last(reader));
    await until(() => behind().length === 0, { about: "all readers", deadlineMs: settleMs }).catch(() => {});
    const lost =
      new Set(log.map(({ n }) => n)).size === sent ? [] : [`${log.length} logged of ${sent} acked`];
    return {
      events: log.length,
      deliveries: readers.reduce((sum, { got }) => sum + got.length, 0),
      moves: readers.reduce((sum, { moves }) => sum + moves, 0),
      repeats: readers.reduce((sum, { repeats }) => sum + repeats, 0),
      faults,
      breaches: [...lost, ...readers.flatMap((reader) => breachOf(reader, log) ?? [])],
    };
  } finally {
    await Promise.all(readers.map((reader) => reader.stop()));
    await store.close();
    await Promise.all(servers.map((server) => server.stop()));
    await Promise.all([postgres.stop(), nats.stop()]);
    await home.remove();
  }
}

// bun run faults:readers [--events N] [--readers N] [--seed N]
if (import.meta.main) {
  const { parseArgs } = await import("node:util");
  const { values } = parseArgs({
    options: {
      events: { type: "string", default: "20000" },
      readers: { type: "string", default: "50" },
      seed: { type: "string", default: String(Math.floor(Math.random() * 1e9)) },
    },
  });
  console.log(`seed ${values.seed}`);
  const outcome = await runReaders({
    events: Number(values.events),
    readers: Number(values.readers),
    seed: Number(values.seed),
    say: console.log,
  });
  console.log(outcome);
  process.exit(outcome.breaches.length === 0 ? 0 : 1);
}
