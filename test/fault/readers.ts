import { resolve } from "node:path";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { clock } from "../cluster/load.ts";
import { startNatsCluster } from "../support/nats.ts";
import { startPostgres } from "../support/postgres.ts";
import { makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { chanceOf } from "./faults.ts";
import { type GroupReaders, openGroupReaders } from "./group-readers.ts";
import {
  bareReader,
  type Interest,
  interests,
  isWanted,
  type Logged,
  type Nodes,
  pickOf,
  type Reader,
  sdkReader,
} from "./lone-readers.ts";
import { type Harm, openHarming } from "./reader-faults.ts";
import { plantsVariable, type ReaderPlant } from "./reader-plants.ts";

export interface ReadersOptions {
  /** To be logged, at least: as long as there is harm, more flows. */
  events: number;
  topics: number;
  readers: number;
  seed: number;
  /**
   * `none`: readers only turn from node to node. `short`: one round of harm, and all of NATS wiped. `long`: rounds for as long as it
   * takes, with a frozen node in each, and all of NATS wiped at last.
   */
  harm: "none" | "short" | "long";
  /** Defects of the servers. */
  plants?: readonly ReaderPlant[];
  /** When the last events must have come, behind everything. */
  settleMs?: number;
  say?: (line: string) => void;
}

/** What was found, and that there was something to be found in. */
export interface ReadersOutcome extends Harm {
  events: number;
  topics: number;
  /** To plain subscribers; over connections behind a last sequence what was logged before they were opened. */
  deliveries: number;
  moves: number;
  resumes: number;
  missed: number;
  repeats: number;
  groups: GroupFigures[];
  breaches: string[];
}

export interface GroupFigures {
  name: string;
  /** Of members, who come and go. */
  joins: number;
  messages: number;
  given: number;
  /** Given before. */
  again: number;
  acked: number;
  /** How long after its acknowledgement a delivery came at the latest. */
  lateMs: number;
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

/** What a caller sends at once, and its pause then; for how long readers stay at a node at the most. */
const paces = {
  none: { atOnce: 1, pauseMs: 10, stayMsMax: 3_000 },
  short: { atOnce: 1, pauseMs: 30, stayMsMax: 3_000 },
  // Slow enough to last for some rounds of harm.
  long: { atOnce: 10, pauseMs: 300, stayMsMax: 10_000 },
};
const callers = 12;
/** A caller waits for an answer so long; a frozen node gives none. */
const answerMs = 10_000;
const groupsOf: { name: string; count: number; interest: Interest }[] = [
  { name: "x", count: 6, interest: interests[1]! },
  { name: "thirds", count: 3, interest: interests[4]! },
  { name: "topics", count: 4, interest: interests[6]! },
];
/** So much of it flows while NATS is wiped. */
const lastShare = 0.05;
const nameOf = (n: number) => `chaos.${"abc"[n % 3]}.${"xy"[Math.floor(n / 3) % 2]}`;
const toldOf = (n: number) => ({ data: { n }, idempotencyKey: `chaos-${n}` });
const preload = resolve(import.meta.dir, "plant-preload.ts");

/** What the logs have of the chaos, in order. */
async function logOf(store: Store): Promise<Logged[]> {
  const rows = await store.all<{ log: Logged["log"]; position: number; name: string; data: string }>(
    sql`SELECT 'events' AS log, position, name, data FROM events WHERE environment_id = 'env_default'
      UNION ALL SELECT 'topics' AS log, position, topic AS name, data FROM topic_messages
      WHERE environment_id = 'env_default' ORDER BY 1, 2`,
  );
  return rows
    .filter(({ name }) => name.startsWith("chaos."))
    .map(({ data, ...one }) => ({ ...one, n: (JSON.parse(data) as { n: number }).n }));
}

/** What a group did not hand out and settle in time, and what it handed out and should not. */
async function breachesOf(
  store: Store,
  group: GroupReaders,
  { log, settleMs }: { log: readonly Logged[]; settleMs: number },
): Promise<string[]> {
  const { name, interest, given } = group;
  const shared = log.filter((one) => isWanted(interest, one)).map(({ position }) => position);
  const state = () =>
    store.one<{ position: number; held: number; last: number | null }>(sql`SELECT g.position,
        (SELECT count(*) FROM group_deliveries d WHERE d.group_id = g.id) AS held,
        (SELECT min(d.position) FROM group_deliveries d WHERE d.group_id = g.id) AS last
      FROM consumer_groups g WHERE g.name = ${name}`);
  // An acknowledgement whose answer was lost counts when the delivery is not held any more.
  const isDone = async () => {
    const now = await state();
    return now !== undefined && now.position >= (shared.at(-1) ?? 0) && now.held === 0;
  };
  const unshared = await until(isDone, { about: name, deadlineMs: settleMs, everyMs: 100 }).then(
    () => [],
    async () => [`group ${name}: not done with ${shared.length}: ${JSON.stringify(await state())}`],
  );
  const wrong = [...new Set(shared).symmetricDifference(new Set(given.keys()))].slice(0, 20);
  return [
    ...unshared,
    ...wrong.map(
      (position) => `group ${name}: ${position} was ${given.has(position) ? "not its own" : "never given"}`,
    ),
    ...group.breaches,
  ];
}

/**
 * Readers that turn from node to node with their last sequence while events and messages flow, nodes are killed, NATS servers
 * are killed one by one and at last wiped: each of them must have the log, its part of it, in order, without a gap or a repeat;
 * each group must hand out every message, and none again that was acknowledged.
 */
export async function runReaders(options: ReadersOptions): Promise<ReadersOutcome> {
  const {
    events,
    topics,
    readers: count,
    seed,
    harm,
    plants = [],
    settleMs = 60_000,
    say = () => {},
  } = options;
  const chance = chanceOf(seed);
  const { atOnce, pauseMs, stayMsMax } = paces[harm];
  const [postgres, nats] = await Promise.all([startPostgres(), startNatsCluster()]);
  const databaseUrl = await postgres.createDatabase();
  const home = await makeHomeAt(databaseUrl);
  const servers: SpawnedServer[] = [];
  const readers: Reader[] = [];
  const groups: GroupReaders[] = [];
  const store = await openStore({ clock, log: silentLog, databaseUrl, file: "", poolSize: 2 });
  try {
    const node = (place: number) =>
      spawnServer({
        engine: "postgres",
        nats: nats.url,
        home,
        settings: { nodeId: `node-${place}`, drainNoticeMs: 200, drainMs: 2_000, poolSize: 8 },
        ...(plants.length > 0 && {
          command: ["env", `BUN_OPTIONS=--preload=${preload}`, `${plantsVariable}=${plants}`],
        }),
      });
    // The first alone: it lands the migrations and writes the key file.
    servers.push(await node(1));
    servers.push(...(await Promise.all([2, 3].map(node))));
    const key = servers[0]!.adminKey;
    const nodes: Nodes = { urls: servers.map(({ url }) => url), key, chance, stayMsMax };
    for (let place = 0; place < count; place++) {
      const interest = interests[place % interests.length]!;
      if (place % 2 === 0) readers.push(bareReader(nodes, interest));
      else readers.push(sdkReader(nodes, interest, place % 4 === 1 ? "websocket" : "connect"));
    }
    for (const group of groupsOf) groups.push(await openGroupReaders({ ...group, nodes }));
    await Promise.all([...readers, ...groups].map(({ ready }) => ready));
    say(
      `${count} readers at three nodes, ${groupsOf.reduce((sum, one) => sum + one.count, 0)} group members`,
    );

    const total = events + topics;
    const harming = openHarming({ servers, nats, chance, say });
    let isHarming = harm !== "none";
    let sent = 0;
    const shake = async () => {
      if (harm === "none") return;
      do {
        await harming.round();
        if (harm === "long") await harming.freeze();
        say(`${sent} of ${total} sent`);
      } while (harm === "long" && sent < total * (1 - lastShare));
      await harming.wipe();
      isHarming = false;
    };
    const tellUntilAcked = (method: string, body: object) =>
      until(
        async () => {
          const answer = await fetch(`${pickOf(nodes)}/svc.v1.${method}`, {
            method: "POST",
            headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
            body: JSON.stringify(body),
            signal: AbortSignal.timeout(answerMs),
          });
          await answer.arrayBuffer();
          return answer.ok;
        },
        { about: `${method} to be acked`, deadlineMs: 120_000, everyMs: 50 },
      );
    const isTopic = (n: number) => Math.floor(((n + 1) * topics) / total) > Math.floor((n * topics) / total);
    const caller = async () => {
      // Also when there are more faults than events: something must flow while they happen.
      while (sent < total || isHarming) {
        const numbers = Array.from({ length: atOnce }, () => sent++);
        const messages = numbers.filter(isTopic).map((n) => ({ topic: nameOf(n), ...toldOf(n) }));
        const list = numbers.filter((n) => !isTopic(n)).map((n) => ({ event: nameOf(n), ...toldOf(n) }));
        if (list.length > 0) await tellUntilAcked("SvcService/TriggerBatch", { events: list });
        if (messages.length > 0) await tellUntilAcked("PubSubService/PublishBatch", { messages });
        await Bun.sleep(pauseMs);
      }
    };
    await Promise.all([shake(), ...Array.from({ length: callers }, caller)]);
    say(`${sent} acked`);

    const log = await logOf(store);
    const last = (reader: Reader) => log.findLast((one) => isWanted(reader.interest, one))?.position;
    const behind = () => readers.filter((reader) => reader.got.at(-1) !== last(reader));
    await until(() => behind().length === 0, { about: "all readers", deadlineMs: settleMs }).catch(() => {});
    const shared = await Promise.all(groups.map((group) => breachesOf(store, group, { log, settleMs })));
    const acked = new Set(log.map(({ n }) => n)).size;
    const sum = (of: (reader: Reader) => number) => readers.reduce((all, reader) => all + of(reader), 0);
    return {
      events: log.filter((one) => one.log === "events").length,
      topics: log.filter((one) => one.log === "topics").length,
      deliveries: sum(({ got }) => got.length),
      moves: sum(({ moves }) => moves),
      resumes: sum(({ resumes }) => resumes),
      missed: sum(({ missed }) => missed),
      repeats: sum(({ repeats }) => repeats),
      ...harming.done,
      groups: groups.map((group): GroupFigures => {
        const given = [...group.given.values()].reduce((all, times) => all + times, 0);
        return {
          name: group.name,
          joins: group.joins(),
          messages: group.given.size,
          given,
          again: given - group.given.size,
          acked: group.acked.size,
          lateMs: group.lateMs(),
        };
      }),
      breaches: [
        ...(acked === sent && log.length === sent ? [] : [`${log.length} logged of ${sent} acked`]),
        ...shared.flat(),
        ...readers.flatMap((reader) => breachOf(reader, log) ?? []),
      ],
    };
  } finally {
    await Promise.all([...groups.map((group) => group.stop()), ...readers.map((reader) => reader.stop())]);
    await store.close();
    await Promise.all(servers.map((server) => server.stop()));
    await Promise.all([postgres.stop(), nats.stop()]);
    await home.remove();
  }
}
