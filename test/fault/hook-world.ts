import { silentLog } from "../../src/kit/log.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { clock } from "../cluster/load.ts";
import type { EngineName } from "../support/engines.ts";
import { sharedNats } from "../support/nats.ts";
import { sharedPostgres, startPostgres } from "../support/postgres.ts";
import { openBalancer } from "../support/proxy.ts";
import {
  type Caller,
  callerOf,
  makeHomeAt,
  type SpawnedServer,
  type SpawnOptions,
  spawnServer,
} from "../support/server.ts";
import { until } from "../support/until.ts";

/** Two nodes over a PostgreSQL of their own, or one over a file, behind an address that stays. */
export interface HookWorld {
  api: Caller;
  url: string;
  /** Kills a node, another one each time, and starts it again. */
  killNode(): Promise<void>;
  /** Kills the database of a world that said so, with all that it had not synced; on libSQL its only process is the node. */
  killDatabase(): Promise<void>;
  /** Asks until it is answered with 200. */
  surely(service: string, method: string, body: object): Promise<Record<string, never>>;
  /** Breaches that the server sees itself. */
  unsound(): Promise<string[]>;
  /** Ends the nodes, so that `look` has the database for itself. */
  afterwards<Found>(look: (store: Store) => Promise<Found>): Promise<Found>;
  stop(): Promise<void>;
}

export async function startHookWorld(
  engine: EngineName,
  settings: NonNullable<SpawnOptions["settings"]>,
  { killsDatabase = false } = {},
): Promise<HookWorld> {
  const isShared = engine === "postgres" && !killsDatabase;
  const postgres = engine === "postgres" && killsDatabase ? await startPostgres() : undefined;
  const databases = isShared ? await sharedPostgres() : postgres;
  const databaseUrl = await databases?.createDatabase();
  const home = await makeHomeAt(databaseUrl);
  const nats = databases && (await sharedNats()).url;
  const spawn = () => spawnServer({ engine, home, ...(nats && { nats }), settings });
  const nodes: SpawnedServer[] = [await spawn()];
  if (databases) nodes.push(await spawn());
  const balancer = await openBalancer(() => nodes.map(({ url }) => Number(new URL(url).port)));
  const key = nodes[0]!.adminKey;
  const api = callerOf(
    () => balancer.url,
    () => key,
  );
  let killed = 0;
  let isRunning = true;
  const end = async () => {
    if (isRunning) await Promise.all(nodes.map((node) => node.stop()));
    isRunning = false;
  };
  const killNode = async () => {
    const node = nodes[killed++ % nodes.length]!;
    await node.kill9();
    await node.restart();
  };

  return {
    ...{ api, url: balancer.url, killNode },
    async killDatabase() {
      if (!postgres) return killNode();
      await postgres.kill9();
      await postgres.restart();
    },
    async surely(service, method, body) {
      const ask = async () => {
        const answer = await api.rpc(service, method, body).catch(() => undefined);
        return answer?.status === 200 && answer.body;
      };
      return until(ask, { about: method, deadlineMs: 60_000, everyMs: 50 });
    },
    async unsound() {
      const report = await until(
        async () => {
          const { status, body } = await api.api("/api/v1/integrity");
          return status === 200 && (body as { checks: { name: string; count: number }[] });
        },
        { about: "the integrity report", deadlineMs: 60_000, everyMs: 100 },
      );
      return report.checks
        .filter(({ name, count }) => count > 0 && /^(?:webhooks|events\.head)/.test(name))
        .map(({ name, count }) => `${name}: ${count}`);
    },
    async afterwards(look) {
      await end();
      const store = await openStore({
        ...{ clock, log: silentLog, databaseUrl, file: home.place.db, poolSize: 2 },
      });
      return look(store).finally(() => store.close());
    },
    async stop() {
      await balancer.stop();
      await end();
      if (isShared) await databases?.dropDatabase(databaseUrl!);
      await postgres?.stop();
      await home.remove();
    },
  };
}
