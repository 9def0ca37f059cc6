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
import { type NatsCluster, startNatsCluster } from "../support/nats.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { type Balancer, openBalancer, openProxy, type TcpProxy } from "../support/proxy.ts";
import { type Home, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** A node with the wires it hangs on. */
export interface WorldNode {
  server: SpawnedServer;
  /** Its way to the database. */
  database: TcpProxy;
}

/** Three nodes over one PostgreSQL and three NATS servers, behind a load balancer, with workers and callers. */
export interface World {
  postgres: PostgresServer;
  nats: NatsCluster;
  nodes: WorldNode[];
  balancer: Balancer;
  workers: WorkerProcess[];
  home: Home;
  /** A worker in place of one that was killed. */
  addWorker(): Promise<void>;
  /** Callers emit until `during` is done; every ack is kept for `check`. Answers how many were acked, and how often one was refused. */
  load(during: () => Promise<unknown>): Promise<{ acked: number; refused: number }>;
  /** Waits until every run is over, then answers the breaches that the checkers find and had not found before. */
  check(): Promise<string[]>;
  stop(): Promise<void>;
}

export interface WorldOptions {
  nodes?: number;
  leaseMs?: number;
  callers?: number;
}

const settleMs = 60_000;

export async function startWorld({
  nodes: count = 3,
  leaseMs = 4_000,
  callers = 8,
}: WorldOptions = {}): Promise<World> {
  const [postgres, nats] = await Promise.all([startPostgres(), startNatsCluster()]);
  const databaseUrl = await postgres.createDatabase();
  const home = await makeHomeAt(databaseUrl);
  const nodes: WorldNode[] = [];
  for (let place = 1; place <= count; place++) {
    const database = await openProxy(() => postgres.port);
    const through = new URL(databaseUrl);
    through.port = String(database.port);
    const server = await spawnServer({
      engine: "postgres",
      nats: nats.url,
      home: { ...home, place: { ...home.place, databaseUrl: through.href } },
      settings: { nodeId: `node-${place}`, leaseMs, poolSize: 10, drainMs: 5_000 },
    });
    nodes.push({ server, database });
  }
  const portOf = ({ server }: WorldNode) => Number(new URL(server.url).port);
  const balancer = await openBalancer(() => nodes.map(portOf));
  const key = nodes[0]!.server.adminKey;
  const journal: Journal = await makeJournal();
  const workers: WorkerProcess[] = [];
  let workersMade = 0;
  const addWorker = async () => {
    workers.push(await spawnWorker(`w${++workersMade}`, { url: balancer.url, key }, { journal }));
  };
  for (let n = 0; n < 2; n++) await addWorker();

  const store: Store = await openStore({ clock, log: silentLog, databaseUrl, file: "", poolSize: 4 });
  const tenant = { environmentId: "env_default", key };
  const acked: AckedEmit[] = [];
  const known = new Set<string>();
  let number = 0;

  return {
    postgres,
    nats,
    nodes,
    balancer,
    workers,
    home,
    addWorker,

    async load(during) {
      const before = acked.length;
      let refused = 0;
      let over = false;
      const call = async () => {
        while (!over) {
          const idempotencyKey = `k-${++number}`;
          acked.push(
            await emitUntilAcked(
              { event: "step.me", data: { number }, idempotencyKey },
              { url: () => balancer.url, tenant, triesMax: 2_000, onRefusal: () => refused++ },
            ),
          );
          await Bun.sleep(10);
        }
      };
      const calling = Promise.all(Array.from({ length: callers }, call));
      try {
        await during();
      } finally {
        over = true;
        await calling;
      }
      return { acked: acked.length - before, refused };
    },

    async check() {
      const open = () => store.all<{ run_id: string }>(sql`SELECT run_id FROM executions LIMIT 5`);
      await until(async () => (await open().catch(() => undefined))?.length === 0, {
        about: "every run to be over",
        deadlineMs: settleMs,
        everyMs: 100,
      });
      const lines = await journal.lines();
      const found = [...(await checkAll(store, { acked, now: clock.now() })), ...stepsRepeated(lines)];
      const fresh = found.filter((breach) => !known.has(breach));
      for (const breach of fresh) known.add(breach);
      return fresh;
    },

    async stop() {
      await Promise.all(workers.map((worker) => worker.kill9()));
      await balancer.stop();
      await store.close();
      await Promise.all(nodes.map(({ server }) => server.stop()));
      await Promise.all([...nodes.map(({ database }) => database.stop()), postgres.stop(), nats.stop()]);
      await Promise.all([journal.remove(), home.remove()]);
    },
  };
}
