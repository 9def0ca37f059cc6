import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { clock, emitUntilAcked } from "../cluster/load.ts";
import {
  type Journal,
  makeJournal,
  spawnWorker,
  stepsRepeated,
  type WorkerProcess,
} from "../cluster/workers.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { makeHost, mayMakeHosts, type OtherHost } from "../support/netns.ts";
import { isNight } from "../support/night.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { type Home, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const leaseMs = 2_000;
const cutMs = 6_000;

describe.skipIf(!mayMakeHosts)("a node on another host, with packets lost in one direction", () => {
  let host: OtherHost;
  let postgres: PostgresServer;
  let nats: NatsServer;
  let home: Home;
  let store: Store;
  let journal: Journal;
  let near: SpawnedServer;
  let far: SpawnedServer;
  const workers: WorkerProcess[] = [];
  const acked: AckedEmit[] = [];
  let number = 0;

  beforeAll(async () => {
    host = await makeHost(process.pid % 60);
    postgres = await startPostgres({ networks: [`${host.there}/32`], settings: { listen_addresses: "*" } });
    nats = await startNats({ address: "0.0.0.0" });
    const databaseUrl = await postgres.createDatabase();
    home = await makeHomeAt(databaseUrl);
    const seenThere = (url: string) => Object.assign(new URL(url), { hostname: host.here }).href;
    near = await spawnServer({
      engine: "postgres",
      nats: nats.url,
      home,
      settings: { nodeId: "near", leaseMs },
    });
    far = await spawnServer({
      engine: "postgres",
      nats: seenThere(nats.url),
      home: { ...home, place: { ...home.place, databaseUrl: seenThere(databaseUrl) } },
      settings: { nodeId: "far", leaseMs, host: host.there },
      command: host.command,
    });
    store = await openStore({ clock, log: silentLog, databaseUrl, poolSize: 2 });
    journal = await makeJournal();
    const worker = (name: string, { url }: SpawnedServer) =>
      spawnWorker(name, { url, key: near.adminKey }, { journal });
    workers.push(...(await Promise.all([worker("at-near", near), worker("at-far", far)])));
  }, 120_000);
  afterAll(async () => {
    await host?.heal();
    await Promise.all(workers.map((worker) => worker.kill9()));
    await store?.close();
    await Promise.all([near?.stop(), far?.stop()]);
    await Promise.all([postgres?.stop(), nats?.stop(), journal?.remove(), home?.remove()]);
    await host?.remove();
  }, 120_000);

  const callers = (server: SpawnedServer, count: number, over: () => boolean) =>
    Array.from({ length: count }, async () => {
      let mine = 0;
      while (!over()) {
        const idempotencyKey = `k-${++number}`;
        const emission = { event: "step.me", data: { number }, idempotencyKey };
        const tenant = { environmentId: "env_default", key: near.adminKey };
        acked.push(await emitUntilAcked(emission, { url: () => server.url, tenant, triesMax: 1_000 }));
        mine++;
        await Bun.sleep(10);
      }
      return mine;
    });

  test.each(isNight ? (["in", "out"] as const) : (["in"] as const))(
    "what goes %s is lost: the others go on, and nothing is lost or done twice",
    async (direction) => {
      let over = false;
      const nearby = callers(near, 4, () => over);
      const away = callers(far, 4, () => over);
      await until(() => acked.length > 50, { about: "a first load", everyMs: 20 });
      const before = acked.length;
      await host.lose(direction);
      // A healthy node does ten times that in this time.
      const goingOn = until(() => acked.length - before > 100, { about: "the others to go on" });
      await Promise.all([goingOn, Bun.sleep(cutMs)]);
      await host.heal();
      over = true;
      await Promise.all([...nearby, ...away]);
      await until(async () => (await store.all(sql`SELECT run_id FROM executions LIMIT 1`)).length === 0, {
        about: "every run to be over",
        deadlineMs: 60_000,
        everyMs: 100,
      });
      expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
      expect(stepsRepeated(await journal.lines())).toEqual([]);
    },
    180_000,
  );
});
