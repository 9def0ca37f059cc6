import { resolve } from "node:path";
import { parseArgs } from "node:util";
import type { Ports } from "./state.ts";

export const upUsage = `bun run cluster/up.ts [options]

Starts PostgreSQL, three NATS servers and three nodes of svc on this machine, loopback only. What runs already is left
alone; what died is started again. Without --detach it stays, and an interrupt stops what it started.

  --detach              return when all is ready; bun run cluster/down.ts stops it
  --only NAME           start only this part: postgres, standby, nats-1, node-2, …; returns when it is ready.
                        A node that is not there yet is added: --only node-4
  --nodes N             how many nodes (default 3)
  --dir DIR             where data, logs and the state are kept (default .svc/cluster)
  --ports N             port of the first node, the next ones follow (default 9123); 0: free ports for everything
  --nats-port N         of the first NATS server (default 4222); --nats-cluster-port (6222), --nats-monitor-port (8222)
  --postgres-port N     (default 5432)
  --standby             a second PostgreSQL that streams from the first and can take its place, on the next port
  --database-url URL    use this PostgreSQL instead of one of our own
  --nats-url URL        use these NATS servers instead of our own

SVC_* and LOG_* variables of this shell are kept and go to every node: SVC_LEASE_MS=5000 bun run cluster/up.ts`;

export const downUsage = `bun run cluster/down.ts [options]

Stops the nodes (they finish what is open), then NATS, then PostgreSQL: exactly the processes that up.ts started.

  --only NAME           stop only this part: postgres, nats-1, node-2, …
  --wipe                also remove its data; without --only: the whole folder
  --dir DIR             as for up.ts (default .svc/cluster)`;

export interface UpOptions {
  folder: string;
  detach: boolean;
  only?: string;
  nodes?: number;
  /** A standby of our own PostgreSQL; once it is there it stays. */
  standby: boolean;
  /** What was asked for; the first start decides, later ones must agree. */
  ports: Partial<Ports>;
  databaseUrl?: string;
  natsUrl?: string;
}

export interface DownOptions {
  folder: string;
  only?: string;
  wipe: boolean;
}

/** A message for the operator; no stack. */
export class Refused extends Error {}

const defaultFolder = ".svc/cluster";
export const defaultPorts: Ports = {
  nodes: 9123,
  nats: 4222,
  natsCluster: 6222,
  natsMonitor: 8222,
  postgres: 5432,
};
const freePorts: Ports = { nodes: 0, nats: 0, natsCluster: 0, natsMonitor: 0, postgres: 0 };
const text = { type: "string" } as const;
const yes = { type: "boolean", default: false } as const;

function number(name: string, given: string | undefined, min: number, max: number): number | undefined {
  if (given === undefined) return undefined;
  const value = /^\d{1,5}$/.test(given) ? Number(given) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new Refused(`--${name}: must be a whole number from ${min} to ${max}, not ${given}`);
}

/** Undefined when help was asked for. */
export function parseUp(args: string[]): UpOptions | undefined {
  const { values } = parsed(args, {
    ...{ dir: text, ports: text, nodes: text, only: text, "database-url": text, "nats-url": text },
    ...{ "nats-port": text, "nats-cluster-port": text, "nats-monitor-port": text, "postgres-port": text },
    ...{ detach: yes, help: yes, standby: yes },
  });
  if (values.help) return undefined;
  if (values.standby && values["database-url"] !== undefined)
    throw new Refused("--standby and --database-url: choose one, the standby is of our own PostgreSQL");
  const port = (name: keyof typeof values) => number(name, values[name] as string | undefined, 0, 65_000);
  const nodes = number("nodes", values.nodes, 1, 50);
  const first = port("ports");
  const given = {
    nodes: first,
    nats: port("nats-port"),
    natsCluster: port("nats-cluster-port"),
    natsMonitor: port("nats-monitor-port"),
    postgres: port("postgres-port"),
  };
  const named = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  return {
    folder: resolve(values.dir ?? defaultFolder),
    standby: values.standby === true,
    detach: values.detach === true || values.only !== undefined,
    ports: { ...(first === 0 && freePorts), ...named },
    ...(values.only !== undefined && { only: values.only }),
    ...(nodes !== undefined && { nodes }),
    ...(values["database-url"] !== undefined && { databaseUrl: values["database-url"] }),
    ...(values["nats-url"] !== undefined && { natsUrl: values["nats-url"] }),
  };
}

export function parseDown(args: string[]): DownOptions | undefined {
  const { values } = parsed(args, { dir: text, only: text, wipe: yes, help: yes });
  if (values.help) return undefined;
  return {
    folder: resolve(values.dir ?? defaultFolder),
    wipe: values.wipe === true,
    ...(values.only !== undefined && { only: values.only }),
  };
}

type Flags = Record<string, typeof text | typeof yes>;
type Parsed<F extends Flags> = {
  values: { [Name in keyof F]?: F[Name]["type"] extends "boolean" ? boolean : string };
};

function parsed<F extends Flags>(args: string[], options: F): Parsed<F> {
  try {
    return parseArgs({ args, options }) as unknown as Parsed<F>;
  } catch (error) {
    throw new Refused(error instanceof Error ? error.message : String(error));
  }
}

/** Runs a command of these tools and ends the process as a shell expects it. */
export async function asCommand(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = error instanceof Refused ? 2 : 1;
  }
}
