import { silentLog } from "../../src/kit/log.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { clock, emitUntilAcked } from "../cluster/load.ts";
import { type Journal, makeJournal, spawnWorker, type WorkerProcess } from "../cluster/workers.ts";
import type { AckedEmit } from "../support/checkers.ts";
import { type NatsCluster, startNatsCluster } from "../support/nats.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { type Balancer, openBalancer, openProxy, type TcpProxy } from "../support/proxy.ts";
import { type Home, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { openEnginePeople, spawnEngineWorker } from "./engine.ts";
import type { Chance } from "./faults.ts";
import { openJudge } from "./judge.ts";

/** A node with the wires it hangs on. */
export interface WorldNode {
  server: SpawnedServer;
  /** Its way to the database. */
  database: TcpProxy;
}

/** Three nodes over one PostgreSQL and three NATS servers, behind a load balancer, with workers and callers. */
export interface World {
  /** The primary, which `failOver` changes. */
  readonly postgres: PostgresServer;
  nats: NatsCluster;
  nodes: WorldNode[];
  balancer: Balancer;
  workers: WorkerProcess[];
  home: Home;
  leaseMs: number;
  /** Kills the primary and promotes a standby; then the old primary comes back, and one node is led there for a while. */
  failOver(misled: WorldNode): Promise<void>;
  /** A worker in place of one that was killed. */
  addWorker(): Promise<void>;
  /**
   * Callers emit and people steer, as chance wants it, until `during` is done, which is told how many emits were acked so
   * far; every ack is kept for `check`. Answers how many were acked, and how often one was refused.
   */
  load(
    chance: Chance,
    during: (acked: () => number) => Promise<unknown>,
  ): Promise<{ acked: number; refused: number }>;
  /** Waits until every run is over, then answers the breaches that the checkers find and had not found before. */
  check(): Promise<string[]>;
  stop(): Promise<void>;
}

export interface WorldOptions {
  nodes?: number;
  leaseMs?: number;
  callers?: number;
  /** Of nodes that leave, as the setting. */
  drainNoticeMs?: number;
}

const misledMs = 2_000;
const synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'";

/** As superuser; the rows of the last statement. */
async function askAs(server: PostgresServer, ...statements: string[]): Promise<unknown[]> {
  const sql = new Bun.SQL(server.url, { max: 1 });
  let rows: unknown[] = [];
  try {
    for (const statement of statements) rows = await sql.unsafe(statement);
    return rows;
  } finally {
    await sql.close();
  }
}

export async function startWorld({
  nodes: count = 3,
  leaseMs = 1_500,
  callers = 4,
  drainNoticeMs = 700,
}: WorldOptions = {}): Promise<World> {
  const [first, nats] = await Promise.all([startPostgres(), startNatsCluster()]);
  let postgres = first;
  const databaseUrl = await postgres.createDatabase();
  const home = await makeHomeAt(databaseUrl);
  const misled = new Map<TcpProxy, PostgresServer>();
  const startNode = async (place: number): Promise<WorldNode> => {
    const database: TcpProxy = await openProxy(() => (misled.get(database) ?? postgres).port);
    const url = new URL(databaseUrl);
    url.port = String(database.port);
    const server = await spawnServer({
      engine: "postgres",
      nats: nats.url,
      home: { ...home, place: { ...home.place, databaseUrl: url.href } },
      settings: { nodeId: `node-${place}`, leaseMs, poolSize: 10, drainNoticeMs, drainMs: 5_000 },
    });
    return { server, database };
  };
  // The first alone: it lands the migrations and writes the key file.
  const firstNode = await startNode(1);
  const others = Array.from({ length: count - 1 }, (_, at) => startNode(at + 2));
  const nodes = [firstNode, ...(await Promise.all(others))];
  const portOf = ({ server }: WorldNode) => Number(new URL(server.url).port);
  const balancer = await openBalancer(() => nodes.map(portOf));
  const key = nodes[0]!.server.adminKey;
  const journal: Journal = await makeJournal();
  const workers: WorkerProcess[] = [];
  const through = { url: balancer.url, key };
  let workersMade = 0;
  const kinds = [
    (name: string) => spawnEngineWorker(name, through, journal, "rest"),
    (name: string) => spawnWorker(name, through, { journal }),
    (name: string) => spawnEngineWorker(name, through, journal, "stream"),
  ];
  // Faults take from the front, so that the kinds come round.
  const newWorker = () => {
    const make = kinds[workersMade++ % kinds.length]!;
    return make(`w${workersMade}`);
  };
  workers.push(...(await Promise.all(kinds.map(newWorker))));

  const way = await openProxy(() => postgres.port);
  const seenByJudge = Object.assign(new URL(databaseUrl), { port: String(way.port) }).href;
  const store: Store = await openStore({
    clock,
    log: silentLog,
    databaseUrl: seenByJudge,
    file: "",
    poolSize: 4,
  });
  const tenant = { environmentId: "env_default", key };
  const acked: AckedEmit[] = [];
  let number = 0;
  const people = openEnginePeople(balancer.url, tenant, journal);
  const judge = openJudge({ store, server: through, journal, people });

  return {
    get postgres() {
      return postgres;
    },
    nats,
    nodes,
    balancer,
    workers,
    home,
    leaseMs,
    async failOver(node) {
      const old = postgres;
      const standby = await startPostgres({ standbyOf: old });
      await askAs(old, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()");
      await until(async () => (await askAs(old, synchronous)).length > 0, { about: "a synchronous standby" });
      await old.kill9();
      await standby.promote();
      postgres = standby;
      await old.restart();
      await askAs(old, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()");
      misled.set(node.database, old);
      node.database.cut();
      await Bun.sleep(misledMs);
      misled.delete(node.database);
      await old.stop();
    },
    addWorker: async () => void workers.push(await newWorker()),

    async load(chance, during) {
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
      const calling = Promise.all([
        ...Array.from({ length: callers }, call),
        people.work(chance, () => over),
      ]);
      try {
        await during(() => acked.length - before);
      } finally {
        over = true;
        await calling;
      }
      return { acked: acked.length - before, refused };
    },

    check: () => judge.check(acked),

    async stop() {
      await Promise.all([judge.stop(), people.stop()]);
      await Promise.all(workers.map((worker) => worker.kill9()));
      await balancer.stop();
      await store.close();
      await Promise.all(nodes.map(({ server }) => server.stop()));
      const ways = [way, ...nodes.map(({ database }) => database)];
      await Promise.all([...ways.map((one) => one.stop()), postgres.stop(), nats.stop()]);
      await Promise.all([journal.remove(), home.remove()]);
    },
  };
}
