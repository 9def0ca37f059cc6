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
  postgres: PostgresServer;
  nats: NatsCluster;
  nodes: WorldNode[];
  balancer: Balancer;
  workers: WorkerProcess[];
  home: Home;
  leaseMs: number;
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

export async function startWorld({
  nodes: count = 3,
  leaseMs = 1_500,
  callers = 4,
  drainNoticeMs = 700,
}: WorldOptions = {}): Promise<World> {
  const [postgres, nats] = await Promise.all([startPostgres(), startNatsCluster()]);
  const databaseUrl = await postgres.createDatabase();
  const home = await makeHomeAt(databaseUrl);
  const startNode = async (place: number): Promise<WorldNode> => {
    const database = await openProxy(() => postgres.port);
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
  const first = await startNode(1);
  const others = Array.from({ length: count - 1 }, (_, at) => startNode(at + 2));
  const nodes = [first, ...(await Promise.all(others))];
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

  const store: Store = await openStore({ clock, log: silentLog, databaseUrl, file: "", poolSize: 4 });
  const tenant = { environmentId: "env_default", key };
  const acked: AckedEmit[] = [];
  let number = 0;
  const people = openEnginePeople(balancer.url, tenant, journal);
  const judge = openJudge({ store, server: through, journal, people });

  return {
    postgres,
    nats,
    nodes,
    balancer,
    workers,
    home,
    leaseMs,
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
      await Promise.all([...nodes.map(({ database }) => database.stop()), postgres.stop(), nats.stop()]);
      await Promise.all([journal.remove(), home.remove()]);
    },
  };
}
