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
import {
  checkDebounced,
  checkEverySlot,
  checkLedgers,
  checkResults,
  overfullLanes,
} from "../support/engine-checkers.ts";
import { type NatsCluster, startNatsCluster } from "../support/nats.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { type Balancer, openBalancer, openProxy, type TcpProxy } from "../support/proxy.ts";
import { callerOf, type Home, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { openEnginePeople, spawnEngineWorker } from "./engine.ts";
import { debounceMs, programsById } from "./programs.ts";

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

const settleMs = 90_000;
/** From the end of the last fault. */
const balancedMs = 30_000;
const sampleEveryMs = 200;

export async function startWorld({
  nodes: count = 3,
  leaseMs = 10_000,
  callers = 4,
}: WorldOptions = {}): Promise<World> {
  const [postgres, nats] = await Promise.all([startPostgres(), startNatsCluster()]);
  const databaseUrl = await postgres.createDatabase();
  const home = await makeHomeAt(databaseUrl);
  const nodes: WorldNode[] = [];
  for (let place = 1; place <= count; place++) {
    const database = await openProxy(() => postgres.port);
    const url = new URL(databaseUrl);
    url.port = String(database.port);
    const server = await spawnServer({
      engine: "postgres",
      nats: nats.url,
      home: { ...home, place: { ...home.place, databaseUrl: url.href } },
      settings: { nodeId: `node-${place}`, leaseMs, poolSize: 10, drainNoticeMs: 700, drainMs: 5_000 },
    });
    nodes.push({ server, database });
  }
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
  const addWorker = async () => {
    const make = kinds[workersMade++ % kinds.length]!;
    workers.push(await make(`w${workersMade}`));
  };
  for (let n = 0; n < kinds.length; n++) await addWorker();

  const store: Store = await openStore({ clock, log: silentLog, databaseUrl, file: "", poolSize: 4 });
  const tenant = { environmentId: "env_default", key };
  const acked: AckedEmit[] = [];
  const known = new Set<string>();
  let number = 0;
  const people = openEnginePeople(balancer.url, tenant, journal);
  const overfull = new Set<string>();
  let sampling = true;
  const sampler = (async () => {
    for (; sampling; await Bun.sleep(sampleEveryMs))
      for (const lane of await overfullLanes(store).catch(() => [])) overfull.add(lane);
  })();

  /** Reads once; a fault may just have taken the connection. */
  const rowsNow = (query: Parameters<Store["all"]>[0]) =>
    store.all<{ run_id: string; state: string }>(query).catch(() => undefined);

  async function untilOver(): Promise<string[]> {
    const left = () =>
      rowsNow(sql`SELECT run_id, state FROM executions WHERE function_id <> 'ticker' LIMIT 1000`);
    const armed = () => rowsNow(sql`SELECT id AS run_id, function_id AS state FROM debounces LIMIT 1`);
    let last: { run_id: string; state: string }[] = [];
    try {
      await until(
        async () => {
          const rows = await left();
          if (rows) last = rows;
          for (const { run_id, state } of rows ?? []) if (state === "held") await people.resume(run_id);
          return rows?.length === 0 && (await armed())?.length === 0;
        },
        { about: "every run to be over", deadlineMs: settleMs, everyMs: 200 },
      );
      return [];
    } catch {
      return last.slice(0, 20).map(({ run_id, state }) => `run ${run_id} is ${state} for ever`);
    }
  }

  async function untilBalanced(): Promise<string[]> {
    const { api } = callerOf(
      () => balancer.url,
      () => key,
    );
    let report: { balanced: boolean; checks: { name: string; count: number }[] } | undefined;
    try {
      await until(
        async () => {
          const answer = await api("/api/v1/integrity").catch(() => undefined);
          if (answer?.status === 200) report = answer.body;
          return report?.balanced === true;
        },
        { about: "integrity", deadlineMs: balancedMs, everyMs: 500 },
      );
      return [];
    } catch {
      const off = report?.checks.filter(({ count }) => count > 0) ?? [];
      return [`integrity: ${report ? off.map(({ name, count }) => `${name} ${count}`) : "never answered"}`];
    }
  }

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
      const calling = Promise.all([...Array.from({ length: callers }, call), people.work(() => over)]);
      try {
        await during();
      } finally {
        over = true;
        await calling;
      }
      return { acked: acked.length - before, refused };
    },

    async check() {
      const integrity = untilBalanced();
      const stuck = await untilOver();
      const lines = await journal.lines();
      const emitted = [...acked, ...people.acked];
      const found = [
        ...stuck,
        ...(await integrity),
        ...(await checkAll(store, { acked: emitted, now: clock.now() })),
        ...(await checkResults(store, { programs: programsById, steered: people.steered })),
        ...(await checkLedgers(store)),
        ...(await checkEverySlot(store, "ticker")),
        ...(await checkDebounced(store, {
          functionId: "debounced",
          event: "burst",
          periodMs: debounceMs,
          bursts: people.bursts,
        })),
        ...overfull,
        ...stepsRepeated(lines),
      ];
      const fresh = found.filter((breach) => !known.has(breach));
      for (const breach of fresh) known.add(breach);
      return fresh;
    },

    async stop() {
      sampling = false;
      await Promise.all([sampler, people.stop()]);
      await Promise.all(workers.map((worker) => worker.kill9()));
      await balancer.stop();
      await store.close();
      await Promise.all(nodes.map(({ server }) => server.stop()));
      await Promise.all([...nodes.map(({ database }) => database.stop()), postgres.stop(), nats.stop()]);
      await Promise.all([journal.remove(), home.remove()]);
    },
  };
}
