import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { failedRoundsMax } from "../../../kit/loop.ts";
import type { Basics, Store } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";

/** A node as the cluster's register knows it. */
export interface KnownNode {
  id: string;
  version: string;
  url: string;
  startedAt: Instant;
  heartbeatAt: Instant;
  drainingAt: Instant | null;
  facts: {
    loops: { name: string; progress_at: Instant | null; failures: number; error?: string }[];
    clock_offset_ms: number;
    clock_uncertainty_ms: number;
    bus_connected: boolean;
    unbalanced?: readonly string[];
    has_twin?: boolean;
    cpu_percent: number;
    memory_bytes: number;
  };
}

export interface HealthDeps extends Basics<"clock" | "nodeId"> {
  store: Pick<Store, "engine" | "ping">;
  bus: { kind: "in-process" | "nats"; connected(): boolean };
  nodes: { list(): Promise<KnownNode[]> };
  leaders: () => Promise<{ duty: string; epoch: number; node_id: string; lease_until: Instant }[]>;
  keyring: Pick<Keyring, "rotated">;
}

/** A node without a heartbeat for this long is gone, or cannot reach the database. */
const silentMs = 15_000;
/** A loop without progress for this long is stuck; the slowest loop ticks every ten minutes. */
const loopStillMs = 15 * 60_000;

const stateOf = (node: KnownNode, now: Instant): "up" | "draining" | "silent" => {
  if (node.heartbeatAt < now - silentMs) return "silent";
  return node.drainingAt === null ? "up" : "draining";
};

/**
 * `GET /cluster/health`: nodes, leaders, database and bus as this node sees them. Callers who do not operate
 * the installation see how many nodes are in each state, and no single node.
 */
export async function clusterHealth(
  { store, clock, nodeId, bus, nodes, leaders, keyring }: HealthDeps,
  detailed: boolean,
) {
  const askedAt = clock.elapsed();
  await store.ping();
  const roundTripMs = clock.elapsed() - askedAt;
  const [known, led, secrets] = await Promise.all([
    nodes.list(),
    leaders(),
    detailed ? keyring.rotated() : undefined,
  ]);
  const now = clock.now();
  const rows = known.map((node) => ({ ...node, state: stateOf(node, now) }));
  // What a silent node said last is no longer news: its loops stand still because it does.
  const heard = rows.filter(({ state }) => state !== "silent");
  const name = ({ id }: KnownNode) => (detailed ? `node ${id}` : "a node");
  const found = [
    ...rows.filter((node) => node.state === "silent").map((node) => `${name(node)} is silent`),
    ...heard.filter((node) => !node.facts.bus_connected).map((node) => `${name(node)} has no message bus`),
    ...heard
      .filter(({ facts }) => facts.has_twin)
      .map((node) =>
        detailed
          ? `two processes are node ${node.id}: give each a SVC_NODE_ID of its own`
          : "two processes are one node",
      ),
    ...led.filter((lead) => lead.lease_until < now - silentMs).map((lead) => `no node leads ${lead.duty}`),
    ...heard.flatMap((node) =>
      node.facts.loops
        .filter((loop) => loop.progress_at !== null && loop.progress_at < now - loopStillMs)
        .map((loop) =>
          detailed ? `loop ${loop.name} of node ${node.id} is stuck` : "a loop of a node is stuck",
        ),
    ),
  ];
  for (const { id, facts } of heard)
    for (const { name: loop, failures, error } of facts.loops)
      if (failures >= failedRoundsMax)
        found.push(detailed ? `loop ${loop} of node ${id} fails: ${error}` : `loop ${loop} of a node fails`);
  for (const { facts } of heard)
    for (const unbalanced of facts.unbalanced ?? [])
      found.push(detailed ? unbalanced : "a check of integrity is out of balance");
  const issues = [...new Set(found)];
  const detailsOf = ({ facts, ...node }: KnownNode) => ({
    id: node.id,
    version: node.version,
    url: node.url,
    started_at: rfc3339(node.startedAt),
    last_heartbeat: rfc3339(node.heartbeatAt),
    bus_connected: facts.bus_connected,
    clock_offset_ms: Math.round(facts.clock_offset_ms),
    clock_uncertainty_ms: Math.round(facts.clock_uncertainty_ms * 10) / 10,
    cpu_percent: facts.cpu_percent,
    memory_bytes: facts.memory_bytes,
    loops: facts.loops.map(({ name, progress_at, failures, error }) => ({
      name,
      last_progress: progress_at === null ? null : rfc3339(progress_at),
      failures,
      ...(error !== undefined && { error }),
    })),
  });
  return {
    status: issues.length === 0 ? "healthy" : "degraded",
    issues,
    mode: bus.kind === "nats" || rows.length > 1 ? "cluster" : "standalone",
    ...(detailed && { node_id: nodeId }),
    nodes: rows.map((node) => ({ ...(detailed && detailsOf(node)), status: node.state })),
    ...(detailed && {
      leaders: led.map((lead) => ({
        duty: lead.duty,
        node_id: lead.node_id,
        epoch: lead.epoch,
        lease_expires_at: rfc3339(lead.lease_until),
      })),
    }),
    ...(secrets && {
      secrets: secrets.map(({ kind, version, rotatedAt, previousUntil }) => ({
        kind,
        version,
        rotated_at: rfc3339(rotatedAt),
        ...(previousUntil !== undefined && { previous_until: rfc3339(previousUntil) }),
      })),
    }),
    database: { engine: store.engine, status: "healthy", round_trip_ms: Math.round(roundTripMs * 10) / 10 },
    bus: { kind: bus.kind, status: bus.connected() ? "connected" : "disconnected" },
  };
}

export type ClusterHealth = Awaited<ReturnType<typeof clusterHealth>>;
