import { existsSync } from "node:fs";
import { join } from "node:path";
import { defaultPorts, Refused, type UpOptions } from "./options.ts";
import { freePort } from "./ports.ts";
import { makePostgresFolder, newPostgresUrls } from "./postgres.ts";
import { type PartState, type Ports, partsOf, type State } from "./state.ts";

const natsCount = 3;
const nodesDefault = 3;

/** The `number`-th port of a kind, counted from 1. */
const portFrom = async (base: number, number: number): Promise<number> =>
  base === 0 ? freePort() : base + number - 1;

async function nodePart(state: State, number: number): Promise<PartState> {
  const isFree = state.ports.nodes === 0;
  // Parts that do not run now keep their ports; where ports are counted, those of other kinds are asked about at the start.
  const taken = new Set(
    isFree
      ? state.parts.flatMap(({ port, clusterPort, monitorPort }) => [port, clusterPort, monitorPort])
      : partsOf(state, "node").map(({ port }) => port),
  );
  let port = await portFrom(state.ports.nodes, number);
  while (taken.has(port)) port = isFree ? await freePort() : port + 1;
  return { name: `node-${number}`, kind: "node", port };
}

/** What a first `up` decides: which parts there are, and where each listens. */
async function newState(options: UpOptions): Promise<State> {
  const { folder } = options;
  if (existsSync(join(folder, "state.json"))) throw new Error(`${folder} has a state already`);
  const ports: Ports = { ...defaultPorts, ...options.ports };
  const state: State = {
    format: 1,
    folder,
    ports,
    databaseUrl: "",
    keyFile: join(folder, "bootstrap-key.json"),
    settings: {},
    parts: [],
  };
  if (options.databaseUrl === undefined) {
    const port = await portFrom(ports.postgres, 1);
    Object.assign(state, newPostgresUrls(port));
    state.postgresFolder = await makePostgresFolder(folder);
    state.parts.push({ name: "postgres", kind: "postgres", port });
  } else {
    state.databaseUrl = options.databaseUrl;
  }
  if (options.natsUrl === undefined) {
    for (let number = 1; number <= natsCount; number++) {
      state.parts.push({
        name: `nats-${number}`,
        kind: "nats",
        port: await portFrom(ports.nats, number),
        clusterPort: await portFrom(ports.natsCluster, number),
        monitorPort: await portFrom(ports.natsMonitor, number),
      });
    }
  } else {
    state.natsUrl = options.natsUrl;
  }
  return state;
}

async function addStandby(state: State): Promise<void> {
  if (state.adminUrl === undefined)
    throw new Refused("--standby: the PostgreSQL of this cluster is not ours, its standby is yours too");
  if (state.parts.some(({ name }) => name === "standby")) return;
  state.parts.push({ name: "standby", kind: "postgres", port: await portFrom(state.ports.postgres, 2) });
}

/** What stands cannot be moved by a later `up`: silence would leave the operator with a wrong belief. */
function requireSame(state: State, options: UpOptions): void {
  const differs = [
    ...Object.entries(options.ports)
      .filter(([name, port]) => state.ports[name as keyof Ports] !== port)
      .map(([name]) => `ports of ${name}`),
    ...(options.databaseUrl !== undefined && options.databaseUrl !== state.databaseUrl
      ? ["--database-url"]
      : []),
    ...(options.natsUrl !== undefined && options.natsUrl !== state.natsUrl ? ["--nats-url"] : []),
  ];
  if (differs.length === 0) return;
  throw new Refused(
    `${state.folder} holds a cluster with other ${differs.join(", ")}: remove it first (cluster:down --wipe), or choose another --dir`,
  );
}

/** The cluster of this folder as it shall be: as it was, new nodes added, settings of this shell taken over. */
export async function layOut(
  known: State | undefined,
  options: UpOptions,
  settings: Record<string, string>,
): Promise<State> {
  if (known) requireSame(known, options);
  const state = known ?? (await newState(options));
  Object.assign(state.settings, settings);
  if (options.standby) await addStandby(state);
  const nodes = partsOf(state, "node");
  const wanted = options.nodes ?? (known ? nodes.length : nodesDefault);
  for (let number = 1; number <= wanted; number++) {
    if (!state.parts.some(({ name }) => name === `node-${number}`))
      state.parts.push(await nodePart(state, number));
  }
  const { only } = options;
  if (only !== undefined && !state.parts.some(({ name }) => name === only)) {
    const number = Number(/^node-([1-9]\d?)$/.exec(only)?.[1]);
    if (!number) throw unknownPart(state, only);
    state.parts.push(await nodePart(state, number));
  }
  return state;
}

export const unknownPart = (state: State, name: string): Refused =>
  new Refused(
    `there is no part ${name}; there are ${partsOf(state)
      .map((part) => part.name)
      .join(", ")}`,
  );
