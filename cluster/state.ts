import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isRunning, type ProcessMark } from "./processes.ts";

export type Kind = "postgres" | "nats" | "node";

export interface PartState {
  /** `postgres`, `standby`, `nats-1`, `node-2`. */
  name: string;
  kind: Kind;
  port: number;
  /** NATS only. */
  clusterPort?: number;
  monitorPort?: number;
  /** The last process that was started for this part; it may have ended. */
  process?: ProcessMark;
}

/** Where the first of each kind listens; the next ones follow. 0 takes free ports. */
export interface Ports {
  nodes: number;
  nats: number;
  natsCluster: number;
  natsMonitor: number;
  postgres: number;
}

/** All that `up` and `down` know of a cluster, as it stands in `state.json` of its folder. */
export interface State {
  format: 1;
  folder: string;
  ports: Ports;
  /** For the nodes, without the standby: `databaseUrlOf` has both. */
  databaseUrl: string;
  /** As superuser; only of our own PostgreSQL, the first. */
  adminUrl?: string;
  /** Its data; outside the folder where the server's user cannot enter that. */
  postgresFolder?: string;
  /** Somebody else's; undefined when the NATS servers are parts of this cluster. */
  natsUrl?: string;
  /** Written by the first node that ever starts here; shared by all. */
  keyFile: string;
  /** SVC_* and LOG_* variables that all nodes get. */
  settings: Record<string, string>;
  parts: PartState[];
}

const order: Kind[] = ["postgres", "nats", "node"];

/** In the order in which they start. */
export const partsOf = (state: State, kind?: Kind): PartState[] =>
  state.parts
    .filter((part) => kind === undefined || part.kind === kind)
    .sort(
      (a, b) =>
        order.indexOf(a.kind) - order.indexOf(b.kind) ||
        a.name.localeCompare(b.name, "en", { numeric: true }),
    );

export const runningOf = (part: PartState): ProcessMark | undefined =>
  isRunning(part.process) ? part.process : undefined;

/** Of all our PostgreSQL servers, where there are several: who connects takes the one that can be written. */
function ofAllHosts(state: State, url: string): string {
  const servers = partsOf(state, "postgres");
  if (servers.length < 2) return url;
  const hosts = servers.map(({ port }) => `127.0.0.1:${port}`).join(",");
  return `${url.replace(/@[^/]*/, `@${hosts}`)}?target_session_attrs=read-write`;
}

export const databaseUrlOf = (state: State): string => ofAllHosts(state, state.databaseUrl);

export const natsUrlOf = (state: State): string =>
  state.natsUrl ??
  partsOf(state, "nats")
    .map(({ port }) => `nats://127.0.0.1:${port}`)
    .join(",");

export const nodeUrlOf = ({ port }: PartState): string => `http://127.0.0.1:${port}`;

export const logOf = (state: State, part: PartState): string =>
  join(state.folder, "logs", `${part.name}.log`);

const fileOf = (folder: string): string => join(folder, "state.json");

export function readState(folder: string): State | undefined {
  if (!existsSync(fileOf(folder))) return undefined;
  const state = JSON.parse(readFileSync(fileOf(folder), "utf8")) as State;
  if (state.format !== 1) throw new Error(`${fileOf(folder)} was written by another version of these tools`);
  return state;
}

/** Passwords stand in it: for its owner only. */
function writePrivate(path: string, text: string): void {
  writeFileSync(`${path}.new`, text, { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

export function writeState(state: State): void {
  mkdirSync(state.folder, { recursive: true });
  // The user of PostgreSQL walks through it to its own folder; whatever is secret has a mode of its own.
  chmodSync(state.folder, 0o711);
  writePrivate(fileOf(state.folder), `${JSON.stringify(state, null, 2)}\n`);
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

/** Variables for a shell that talks to the cluster: `. .svc/cluster/env`. Named so that a server started there takes none. */
export function writeEnvironment(state: State): void {
  const key = existsSync(state.keyFile)
    ? (JSON.parse(readFileSync(state.keyFile, "utf8")) as { key?: string }).key
    : undefined;
  const [first] = partsOf(state, "node");
  const values: Record<string, string | undefined> = {
    SVC_SERVER_URL: first && nodeUrlOf(first),
    SVC_API_KEY: key,
    CLUSTER_DATABASE_URL: databaseUrlOf(state),
    CLUSTER_ADMIN_URL: state.adminUrl && ofAllHosts(state, state.adminUrl),
    CLUSTER_NATS_URL: natsUrlOf(state),
  };
  const lines = Object.entries(values).flatMap(([name, value]) =>
    value === undefined ? [] : [`export ${name}=${quoted(value)}`],
  );
  writePrivate(join(state.folder, "env"), `${lines.join("\n")}\n`);
}
