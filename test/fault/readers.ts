import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import { clock, emitUntilAcked } from "../cluster/load.ts";
import { startNatsCluster } from "../support/nats.ts";
import { startPostgres } from "../support/postgres.ts";
import { callerOf, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { chanceOf } from "./faults.ts";
import { openGroupReaders } from "./group-readers.ts";
import {
  bareReader,
  interests,
  isWanted,
  type Logged,
  type Nodes,
  pickOf,
  type Reader,
  sdkReader,
} from "./lone-readers.ts";

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
  /** Deliveries to members of the group, and positions whose acknowledgement was answered. */
  given: number;
  acked: number;
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
const membersOfGroup = 6;
/** Every fault once while so many events flow, or so. */
const eventsARound = 3_000;
/** The last events must have come so long after everything is well again. */
const settleMs = 60_000;

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
  let endGroup = async () => {};
  const store = await openStore({ clock, log: silentLog, databaseUrl, file: "", poolSize: 2 });
  try {
    const node = (place: number) =>
      spawnServer({
        engine: "postgres",
        nats: nats.url,
        home,
        settings: { nodeId: `node-${place}`, drainNoticeMs: 200, drainMs: 2_000, poolSize: 8 },
      });
    // The first alone: it lands the migrations and writes the key file.
    servers.push(await node(1));
    servers.push(...(await Promise.all([2, 3].map(node))));
    const key = servers[0]!.adminKey;
    const nodes: Nodes = { urls: servers.map(({ url }) => url), key, chance };
    for (let place = 0; place < count; place++) {
      const interest = interests[place % interests.length]!;
      if (place % 2 === 0) readers.push(bareReader(nodes, interest));
      else readers.push(sdkReader(nodes, interest, place % 4 === 1 ? "websocket" : "connect"));
    }
    const group = await openGroupReaders({
      pick: () => pickOf(nodes),
      key,
      chance,
      count: membersOfGroup,
      pattern: "chaos.*.x",
    });
    endGroup = group.stop;
    await Promise.all([...readers.map(({ ready }) => ready), group.ready]);
    say(`${count} readers at three nodes, ${membersOfGroup} members of a group`);

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
    const shared = log.filter((one) => one.log === "events" && one.name.endsWith(".x"));
    const pending = async () =>
      (await store.all<{ position: number }>(sql`SELECT position FROM group_deliveries LIMIT 20`)).map(
        ({ position }) => position,
      );
    const handedOut = async () =>
      (await store.all<{ position: number }>(sql`SELECT position FROM consumer_groups`))[0]?.position ?? 0;
    // An acknowledgement whose answer was lost counts when the delivery is not held any more.
    const isShared = async () =>
      (await handedOut()) >= (shared.at(-1)?.position ?? 0) && (await pending()).length === 0;
    const unshared = await until(isShared, { about: "the group", deadlineMs: settleMs, everyMs: 100 }).then(
      () => [],
      async () => [`the group stands at ${await handedOut()} and waits for ${await pending()}`],
    );
    const lost =
      new Set(log.map(({ n }) => n)).size === sent ? [] : [`${log.length} logged of ${sent} acked`];
    return {
      events: log.length,
      deliveries: readers.reduce((sum, { got }) => sum + got.length, 0),
      moves: readers.reduce((sum, { moves }) => sum + moves, 0),
      repeats: readers.reduce((sum, { repeats }) => sum + repeats, 0),
      faults,
      given: [...group.given.values()].reduce((sum, times) => sum + times, 0),
      acked: group.acked.size,
      breaches: [
        ...lost,
        ...unshared,
        ...group.breaches,
        ...[
          ...new Set(shared.map(({ position }) => position)).symmetricDifference(new Set(group.given.keys())),
        ]
          .slice(0, 20)
          .map((position) => `position ${position}: the group got it and should not, or the other way round`),
        ...readers.flatMap((reader) => breachOf(reader, log) ?? []),
      ],
    };
  } finally {
    await Promise.all([endGroup(), ...readers.map((reader) => reader.stop())]);
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
