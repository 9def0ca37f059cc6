import { drivers } from "../../src/store/libsql-drivers.ts";
import { statements, syncSession } from "../../src/store/libsql-session.ts";
import { libsqlSeams } from "../../src/store/libsql-text.ts";
import { makeJournal, type WorkerProcess } from "../cluster/workers.ts";
import type { Checked } from "../support/checkers.ts";
import { type Balancer, openBalancer } from "../support/proxy.ts";
import { type Home, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { type EnginePeople, openEnginePeople, spawnEngineWorker } from "./engine.ts";
import type { Chance } from "./faults.ts";
import { openJudge } from "./judge.ts";

/** One server over a database file, at an address that stays, with the engine's workers and people. */
export interface LibsqlWorld {
  server: SpawnedServer;
  home: Home;
  workers: WorkerProcess[];
  people: EnginePeople;
  balancer: Balancer;
  addWorker(): Promise<void>;
  /** From now on the server, that is gone, is one over the database in `folder`. */
  moveTo(folder: string): Promise<void>;
  /** People start and steer runs until `during` is done. */
  load(chance: Chance, during: () => Promise<unknown>): Promise<void>;
  check(): Promise<string[]>;
  stop(): Promise<void>;
}

/** Reads the file beside whoever writes it; each time anew, for the file may be another one by then. */
function readerOf(file: () => string): Checked {
  return {
    seams: libsqlSeams,
    async all<Row extends object>(query: Parameters<Checked["all"]>[0]) {
      const connection = (await drivers["bun:sqlite"]())(file(), 5_000);
      try {
        connection.exec("PRAGMA query_only = ON");
        return syncSession(statements(connection)).all<Row>(query);
      } finally {
        connection.close();
      }
    },
  };
}

export async function startLibsqlWorld(
  settings: NonNullable<Parameters<typeof spawnServer>[0]["settings"]>,
  folder?: string,
): Promise<LibsqlWorld> {
  let home = await makeHomeAt(undefined, folder);
  const { remove } = home;
  let server = await spawnServer({ engine: "libsql", home, settings });
  const balancer = await openBalancer(() => [Number(new URL(server.url).port)]);
  const journal = await makeJournal();
  const through = { url: balancer.url, key: server.adminKey };
  const workers: WorkerProcess[] = [];
  let workersMade = 0;
  const newWorker = () => {
    const transport = workersMade++ % 2 === 0 ? "rest" : "stream";
    return spawnEngineWorker(`w${workersMade}`, through, journal, transport);
  };
  workers.push(...(await Promise.all([newWorker(), newWorker()])));
  const tenant = { environmentId: server.env, key: server.adminKey };
  const people = openEnginePeople(balancer.url, tenant, journal);
  const store = readerOf(() => home.place.db);
  const judge = openJudge({ store, server: through, journal, people });
  const gone: SpawnedServer[] = [];

  return {
    get server() {
      return server;
    },
    get home() {
      return home;
    },
    workers,
    people,
    balancer,
    addWorker: async () => void workers.push(await newWorker()),
    async moveTo(place) {
      gone.push(server);
      home = { ...home, place: { db: `${place}/svc.db`, databaseUrl: undefined } };
      server = await spawnServer({ engine: "libsql", home, settings });
    },
    async load(chance, during) {
      let over = false;
      const working = people.work(chance, () => over);
      try {
        await during();
      } finally {
        over = true;
        await working;
      }
    },
    check: () => judge.check([]),
    async stop() {
      await Promise.all([judge.stop(), people.stop()]);
      await Promise.all(workers.map((worker) => worker.kill9()));
      await balancer.stop();
      for (const one of [server, ...gone]) await one.stop();
      await Promise.all([journal.remove(), remove()]);
    },
  };
}
