import type { World, WorldNode } from "./world.ts";

/** Numbers from a seed, so that a round can be run again (mulberry32). */
export type Chance = () => number;

export function chanceOf(seed: number): Chance {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

export interface Fault {
  name: string;
  /** Does the harm and undoes it; what it leaves behind must heal without anybody's help. */
  run(world: World, chance: Chance): Promise<void>;
  /** Too long for the short mode. */
  slow?: boolean;
  /** No other fault goes on meanwhile in the short mode. */
  alone?: boolean;
}

const sleep = (ms: number) => Bun.sleep(ms);
const one = <T>(list: readonly T[], chance: Chance): T => list[Math.floor(chance() * list.length)]!;
const between = (min: number, max: number, chance: Chance) => min + Math.floor(chance() * (max - min));

const signal = ({ server }: WorldNode, name: NodeJS.Signals) => process.kill(server.pid(), name);

/** Everything that a small company's cluster meets sooner or later. */
export const faults: readonly Fault[] = [
  {
    name: "a node is killed",
    async run(world, chance) {
      const { server } = one(world.nodes, chance);
      await server.kill9();
      await sleep(between(200, 2_000, chance));
      await server.restart();
    },
  },
  {
    name: "a node is frozen past its leases",
    async run(world, chance) {
      const node = one(world.nodes, chance);
      signal(node, "SIGSTOP");
      await sleep(between(world.leaseMs + 500, world.leaseMs + 3_000, chance));
      signal(node, "SIGCONT");
    },
  },
  {
    name: "a worker is killed",
    async run(world) {
      const worker = world.workers.shift()!;
      await worker.kill9();
      await world.addWorker();
    },
  },
  {
    name: "a worker is frozen past its lease",
    async run(world, chance) {
      const worker = one(world.workers, chance);
      worker.freeze();
      await sleep(between(world.leaseMs + 500, world.leaseMs + 2_000, chance));
      worker.thaw();
    },
  },
  {
    name: "PostgreSQL restarts",
    run: (world) => world.postgres.restart(),
  },
  {
    name: "PostgreSQL is killed",
    async run(world, chance) {
      await world.postgres.kill9();
      await sleep(between(200, 1_500, chance));
      await world.postgres.restart();
    },
  },
  {
    name: "PostgreSQL is away for 30 s",
    slow: true,
    async run(world) {
      await world.postgres.shutDown();
      await sleep(30_000);
      await world.postgres.restart();
    },
  },
  {
    name: "PostgreSQL fails over to a standby",
    // A node that begins while no server can be written ends, and the whole promotion is such a time.
    alone: true,
    run: (world, chance) => world.failOver(one(world.nodes, chance)),
  },
  {
    name: "NATS servers are killed one by one",
    async run(world, chance) {
      for (const server of world.nats.servers) {
        await server.kill9();
        await sleep(between(300, 1_500, chance));
        await server.restart();
      }
    },
  },
  {
    name: "all NATS servers are stopped",
    async run(world, chance) {
      await Promise.all(world.nats.servers.map((server) => server.shutDown()));
      await sleep(between(1_000, 5_000, chance));
      await Promise.all(world.nats.servers.map((server) => server.restart()));
    },
  },
  {
    name: "all NATS servers are wiped",
    async run(world) {
      await Promise.all(world.nats.servers.map((server) => server.kill9()));
      await Promise.all(world.nats.servers.map((server) => server.restart({ wipe: true })));
    },
  },
  {
    name: "a node no longer hears the database",
    async run(world, chance) {
      const { database } = one(world.nodes, chance);
      database.deaf.down = true;
      await sleep(between(2_000, 5_000, chance));
      database.deaf.down = false;
      // A connection that lost bytes in its middle is no connection any more.
      database.cut();
    },
  },
  {
    name: "the database no longer hears a node",
    async run(world, chance) {
      const { database } = one(world.nodes, chance);
      database.deaf.up = true;
      await sleep(between(2_000, 5_000, chance));
      database.deaf.up = false;
      database.cut();
    },
  },
  {
    name: "a node's way to the database is slow",
    async run(world, chance) {
      const { database } = one(world.nodes, chance);
      database.delayMs = between(20, 300, chance);
      await sleep(between(1_500, 3_000, chance));
      database.delayMs = 0;
    },
  },
  {
    name: "a node's connections to the database break",
    async run(world, chance) {
      const { database } = one(world.nodes, chance);
      for (let times = between(1, 5, chance); times > 0; times--) {
        database.cut();
        await sleep(between(20, 300, chance));
      }
    },
  },
  {
    name: "every client's connection breaks",
    async run(world) {
      world.balancer.cut();
    },
  },
  {
    name: "all nodes are replaced one after the other",
    async run(world) {
      for (const { server } of world.nodes) {
        await server.terminate();
        await server.restart();
      }
    },
  },
];
