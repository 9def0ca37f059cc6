import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { clock } from "../cluster/load.ts";
import { startNatsCluster } from "../support/nats.ts";
import { callerOf, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { chanceOf } from "./faults.ts";
import {
  bareWatcher,
  type KeyChange,
  type KeyInterest,
  type KeyWatcher,
  sdkWatcher,
} from "./key-watchers.ts";
import { type Nodes, pickOf } from "./lone-readers.ts";
import { type Harm, openHarming } from "./reader-faults.ts";

export interface KeysOptions {
  watchers: number;
  /** At least: as long as there is harm, more are put. */
  puts: number;
  seed: number;
  /** `short`: one node is killed, and all of NATS wiped. `long`: rounds of it until all is put. */
  harm: "short" | "long";
  say?: (line: string) => void;
}

export interface KeysOutcome extends Harm {
  puts: number;
  revisions: number;
  told: number;
  resumes: number;
  breaches: string[];
}

const buckets = ["first", "second"];
/** Values of a key that a bucket keeps; each key is put less often, so that nothing a late watcher must hear is gone. */
const history = 64;
const putsAKey = 40;
const paces = {
  short: { callers: 6, pauseMs: 20, stayMsMax: 2_000 },
  long: { callers: 12, pauseMs: 60, stayMsMax: 30_000 },
};
const settleMs = 60_000;

const keyOf = (n: number) => `${"abc"[n % 3]}.${Math.floor(n / (putsAKey * 6))}.${n % 6}`;
const interests: Omit<KeyInterest, "bucket">[] = [
  { key: undefined, wants: () => true },
  { key: ">", wants: () => true },
  { key: "a.>", wants: (key) => key.startsWith("a.") },
  { key: "*.0.*", wants: (key) => key.split(".")[1] === "0" },
  { key: "b.0.1", wants: (key) => key === "b.0.1" },
];

/** All changes of a bucket by revision, each with its value. */
const changesOf = (store: Store, bucket: string): Promise<KeyChange[]> =>
  store
    .all(sql`SELECT c.revision, c.key, c.text FROM (
      SELECT bucket_id, revision, key, COALESCE(value, '') AS text FROM kv_keys
      UNION ALL SELECT bucket_id, revision, key, value AS text FROM kv_history) c
    JOIN kv_buckets b ON b.id = c.bucket_id WHERE b.name = ${bucket} ORDER BY c.revision`)
    .then((rows) =>
      (rows as unknown as KeyChange[]).map((row) => ({
        ...row,
        text: Buffer.from(row.text, "base64").toString(),
      })),
    );

/** What a watcher was told, beside what its bucket has for it. */
export function breachOf(
  { about, interest, got }: Pick<KeyWatcher, "about" | "interest" | "got">,
  changes: readonly KeyChange[],
): string | undefined {
  const wanted = changes.filter(({ key }) => interest.wants(key));
  const same = (one: KeyChange, other: KeyChange | undefined) =>
    one.revision === other?.revision && one.key === other.key && one.text === other.text;
  const at = wanted.findIndex((change, place) => !same(change, got[place]));
  if (at < 0 && got.length === wanted.length) return undefined;
  const place = at < 0 ? wanted.length : at;
  const shown = (list: readonly KeyChange[]) => JSON.stringify(list.slice(place, place + 2));
  return `${about}: ${got.length} of ${wanted.length}, at ${place} got ${shown(got)} and not ${shown(wanted)}`;
}

/**
 * Watchers at three nodes while keys are put and deleted, nodes are killed and NATS is wiped: each of them must be told every
 * change that it watches, in the order of the revisions, once; and each answered put must stand at its revision.
 */
export async function runKeys({
  watchers: count,
  puts,
  seed,
  harm,
  say = () => {},
}: KeysOptions): Promise<KeysOutcome> {
  const { callers, pauseMs, stayMsMax } = paces[harm];
  const chance = chanceOf(seed);
  const [home, nats] = await Promise.all([makeHome("postgres"), startNatsCluster(harm === "short" ? 1 : 3)]);
  const servers: SpawnedServer[] = [];
  const watchers: KeyWatcher[] = [];
  const { databaseUrl } = home.place;
  const store = await openStore({ clock, log: silentLog, databaseUrl, file: "", poolSize: 2 });
  try {
    const node = () =>
      spawnServer({ engine: "postgres", nats: nats.url, home, settings: { drainMs: 2_000, poolSize: 8 } });
    // The first alone: it writes the key file.
    servers.push(await node());
    servers.push(...(await Promise.all([node(), node()])));
    const { adminKey: key, url } = servers[0]!;
    const nodes: Nodes = { urls: servers.map((server) => server.url), key, chance, stayMsMax };
    const { api } = callerOf(
      () => url,
      () => key,
    );
    for (const name of buckets) await api("/api/v1/kv/buckets", { body: { name, history } });
    for (let place = 0; place < count; place++) {
      const interest = {
        bucket: buckets[place % 2]!,
        ...interests[Math.floor(place / 2) % interests.length]!,
      };
      watchers.push((place % 4 === 3 ? sdkWatcher : bareWatcher)(nodes, interest));
    }
    say(`${count} watchers at three nodes`);

    const harming = openHarming({ servers, nats, chance, say });
    let isHarming = true;
    let made = 0;
    const shake = async () => {
      const areThere = () => watchers.every(({ got }) => got.length > 0);
      await until(areThere, { about: "all watchers to be told something", deadlineMs: settleMs });
      do {
        await (harm === "long" ? harming.round() : harming.kill());
        say(`${made} of ${puts} put`);
      } while (harm === "long" && made < puts * 0.9);
      await harming.wipe();
      isHarming = false;
    };
    const acked = new Map(buckets.map((bucket) => [bucket, [] as KeyChange[]]));
    const change = async (bucket: string, one: Omit<KeyChange, "revision">, method: "PUT" | "DELETE") => {
      const path = `/api/v1/kv/buckets/${bucket}/keys/${one.key}`;
      const answer = await until(
        async () => {
          const response = await fetch(`${pickOf(nodes)}${path}`, {
            method,
            headers: { authorization: `Bearer ${key}` },
            ...(method === "PUT" && { body: one.text }),
            signal: AbortSignal.timeout(10_000),
          });
          const text = await response.text();
          return response.ok && (text === "" ? {} : (JSON.parse(text) as { revision?: number }));
        },
        { about: "a change to be acked", deadlineMs: 120_000, everyMs: 50 },
      );
      if (answer.revision !== undefined) acked.get(bucket)!.push({ ...one, revision: answer.revision });
    };
    const caller = async () => {
      // Also when there is more harm than puts: something must be told while it happens.
      while (made < puts || isHarming) {
        const n = made++;
        await change(buckets[n % 2]!, { key: keyOf(n >> 1), text: `${n}` }, "PUT");
        await Bun.sleep(pauseMs);
      }
    };
    await Promise.all([shake(), ...Array.from({ length: callers }, caller)]);
    // Deletions last: a marker that a later put replaces is told to nobody.
    for (const bucket of buckets) await change(bucket, { key: keyOf(0), text: "" }, "DELETE");

    const all = new Map<string, KeyChange[]>();
    for (const bucket of buckets) all.set(bucket, await changesOf(store, bucket));
    const lastOf = ({ interest: { bucket, wants } }: KeyWatcher) =>
      all.get(bucket)!.findLast((one) => wants(one.key))?.revision;
    const behind = () => watchers.filter((one) => one.got.at(-1)?.revision !== lastOf(one));
    await until(() => behind().length === 0, { about: "all watchers", deadlineMs: settleMs }).catch(() => {});
    const sum = (of: (watcher: KeyWatcher) => number) => watchers.reduce((most, one) => most + of(one), 0);
    return {
      ...harming.done,
      puts: made,
      revisions: buckets.reduce((most, bucket) => most + all.get(bucket)!.length, 0),
      told: sum(({ got }) => got.length),
      resumes: sum(({ resumes }) => resumes),
      breaches: [
        ...buckets.flatMap((bucket) => [
          ...unkept(all.get(bucket)!).map((line) => `${bucket}: ${line}`),
          ...unlogged(acked.get(bucket)!, all.get(bucket)!).map((line) => `${bucket}: ${line}`),
        ]),
        ...watchers.flatMap((one) => breachOf(one, all.get(one.interest.bucket)!) ?? []),
      ],
    };
  } finally {
    await Promise.all(watchers.map((one) => one.stop().catch(() => {})));
    await store.close();
    await Promise.all(servers.map((server) => server.stop()));
    await nats.stop();
    await home.remove();
  }
}

/** The first revision that is not there, or is there twice. */
function unkept(changes: readonly KeyChange[]): string[] {
  const at = changes.findIndex(({ revision }, place) => revision !== place + 1);
  return at < 0 ? [] : [`revision ${changes[at]!.revision} stands at place ${at + 1}`];
}

/** Acknowledged puts that do not stand at their revision. */
const unlogged = (acked: readonly KeyChange[], changes: readonly KeyChange[]): string[] =>
  acked
    .filter(({ revision, key, text }) => {
      const found = changes[revision - 1];
      return found?.key !== key || found.text !== text;
    })
    .map((one) => `acked and not there: ${JSON.stringify(one)}`);
