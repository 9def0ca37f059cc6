import type { NatsCluster } from "../support/nats.ts";
import type { SpawnedServer } from "../support/server.ts";
import type { Chance } from "./faults.ts";

/** What was done to the cluster that readers read from. */
export interface Harm {
  nodesKilled: number;
  nodesReplaced: number;
  nodesFrozen: number;
  natsKilled: number;
  natsWiped: number;
}

export interface Harming {
  readonly done: Harm;
  /** Kills a node, any when it is not said. */
  kill(server?: SpawnedServer): Promise<void>;
  /** Kills each node and each NATS server, one by one, and replaces a node in peace. */
  round(): Promise<void>;
  /** Freezes a node until the others have taken its members for dead, and what they held. */
  freeze(): Promise<void>;
  /** All NATS servers at once, with everything that they know. */
  wipe(): Promise<void>;
}

export interface HarmingOptions {
  servers: readonly SpawnedServer[];
  nats: NatsCluster;
  chance: Chance;
  say: (line: string) => void;
}

export function openHarming({ servers, nats, chance, say }: HarmingOptions): Harming {
  const done: Harm = { nodesKilled: 0, nodesReplaced: 0, nodesFrozen: 0, natsKilled: 0, natsWiped: 0 };
  const any = () => servers[Math.floor(chance() * servers.length)]!;

  async function harm(kind: keyof Harm, line: string, work: () => Promise<unknown>): Promise<void> {
    say(line);
    await work();
    done[kind]++;
    await Bun.sleep(300 + chance() * 700);
  }
  const killed = async (program: Pick<SpawnedServer, "kill9" | "restart">) => {
    await program.kill9();
    await Bun.sleep(chance() * 1_000);
    await program.restart();
  };

  const kill = (server = any()) => harm("nodesKilled", "a node is killed", () => killed(server));

  return {
    done,
    kill,
    async round() {
      for (const server of servers) await kill(server);
      for (const server of nats.servers)
        await harm("natsKilled", "a NATS server is killed", () => killed(server));
      await harm("nodesReplaced", "a node is replaced", async () => {
        const server = any();
        await server.terminate();
        await server.restart();
      });
    },
    freeze: () =>
      harm("nodesFrozen", "a node is frozen", async () => {
        const pid = any().pid();
        process.kill(pid, "SIGSTOP");
        await Bun.sleep(6_000 + chance() * 2_000);
        process.kill(pid, "SIGCONT");
      }),
    wipe: () =>
      harm("natsWiped", "all of NATS is wiped", async () => {
        await Promise.all(nats.servers.map((server) => server.kill9()));
        await Promise.all(nats.servers.map((server) => server.restart({ wipe: true })));
      }),
  };
}
