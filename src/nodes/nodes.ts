import type { Presence } from "../bus/bus.ts";
import type { Clock, Instant } from "../kit/clock.ts";
import { sql } from "../kit/sql.ts";
import type { Basics, Session } from "../store/store.ts";

/** A node without a heartbeat for this long is no longer listed. */
const nodeForgottenMs = 60 * 60 * 1000;

/** A process whose heartbeat was not found for this long, three of them, has gone. */
const twinForgottenMs = 10_000;

/** What a node says of itself with every heartbeat. */
export interface NodeFacts {
  loops: { name: string; progress_at: Instant | null; failures: number; error?: string }[];
  clock_offset_ms: number;
  clock_uncertainty_ms: number;
  bus_connected: boolean;
  /** Share of one core since the last heartbeat. */
  cpu_percent: number;
  memory_bytes: number;
  /** Another process has this name, and neither heeds what the other says; none of a version before 0.41. */
  has_twin?: boolean;
  /** Integrity checks that have long been out of balance at this node, in words; none before version 0.41. */
  unbalanced?: readonly string[];
  /** What its program does that one before does not: what counts once no older node lives. */
  knows: readonly string[];
}

export interface NodeRecord {
  id: string;
  version: string;
  url: string;
  startedAt: Instant;
  heartbeatAt: Instant;
  drainingAt: Instant | null;
  facts: NodeFacts;
}

export interface ClusterNodesDeps extends Basics<"store" | "clock" | "log" | "nodeId"> {
  bus: { present(): readonly Presence[] };
  version: string;
  url: () => string;
  facts: () => Omit<NodeFacts, "has_twin">;
}

interface NodeRow {
  id: string;
  version: string;
  url: string;
  started_at: number;
  heartbeat_at: number;
  draining_at: number | null;
  facts: string;
}

/** Nodes of one database, by their rows. Heartbeats over the bus count, too: they are newer than rows. */
export function openNodes(deps: ClusterNodesDeps) {
  const { store, clock, bus, log, nodeId, version } = deps;
  const startedAt = clock.now();
  let drainingAt: Instant | null = null;
  let hasWritten = false;
  /** Until when another process of this name is believed to live. */
  let twinUntil: Instant | undefined;

  /** After a heartbeat of this process the row is its own, unless two processes have the node's name. */
  function noteWriter(writer: Instant | undefined): void {
    const isOther = hasWritten && writer !== undefined && writer !== startedAt;
    if (!isOther) return;
    if (twinUntil === undefined || twinUntil < clock.now())
      log.error("node.name_taken", { text: "another process has this SVC_NODE_ID: give each its own" });
    twinUntil = clock.now() + twinForgottenMs;
  }

  const own = (): NodeRecord => ({
    id: nodeId,
    version,
    url: deps.url(),
    startedAt,
    heartbeatAt: clock.now(),
    drainingAt,
    facts: { ...deps.facts(), ...(twinUntil !== undefined && twinUntil > clock.now() && { has_twin: true }) },
  });

  const write = async () => {
    // A file has one node, which knows itself.
    if (!store.isShared) return;
    const [writer] = await store.all<{ started_at: Instant }>(
      sql`SELECT started_at FROM nodes WHERE id = ${nodeId}`,
    );
    noteWriter(writer?.started_at);
    const { url, heartbeatAt, facts } = own();
    await store.write((session) =>
      session.run(sql`INSERT INTO nodes (id, version, url, started_at, heartbeat_at, draining_at, facts)
        VALUES (${nodeId}, ${version}, ${url}, ${startedAt}, ${heartbeatAt}, ${drainingAt}, ${JSON.stringify(facts)})
        ON CONFLICT (id) DO UPDATE SET version = excluded.version, url = excluded.url,
          started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at, draining_at = excluded.draining_at,
          facts = excluded.facts`),
    );
    hasWritten = true;
  };

  return {
    /** The tick of loop `cluster.nodes`. */
    heartbeatOnce: write,

    /** Every node with a recent heartbeat, this one included, by id. */
    async list(): Promise<NodeRecord[]> {
      const rows = await store.all<NodeRow>(
        sql`SELECT id, version, url, started_at, heartbeat_at, draining_at, facts FROM nodes
          WHERE heartbeat_at > ${clock.now() - nodeForgottenMs} AND id <> ${nodeId}`,
      );
      const heard = new Map(bus.present().map((one) => [one.nodeId, one.seenAt]));
      const others = rows.map(
        (row): NodeRecord => ({
          id: row.id,
          version: row.version,
          url: row.url,
          startedAt: row.started_at,
          heartbeatAt: Math.max(row.heartbeat_at, heard.get(row.id) ?? 0),
          drainingAt: row.draining_at,
          facts: JSON.parse(row.facts) as NodeFacts,
        }),
      );
      return [own(), ...others].sort((a, b) => (a.id < b.id ? -1 : 1));
    },

    /** From now on the others see this node drain. */
    async drain() {
      drainingAt ??= clock.now();
      await write();
    },

    /** Off the list. */
    async leave() {
      if (!store.isShared) return;
      await store.write((session) =>
        session.run(sql`DELETE FROM nodes WHERE id = ${nodeId} AND started_at = ${startedAt}`),
      );
    },

    forgetSilent: (session: Session) =>
      session.run(sql`DELETE FROM nodes WHERE heartbeat_at < ${clock.now() - nodeForgottenMs}`),
  };
}

/** CPU and memory of this process since it was last asked. */
export function processUsage(
  clock: Pick<Clock, "elapsed">,
): () => { cpu_percent: number; memory_bytes: number } {
  let last = { at: clock.elapsed(), cpu: process.cpuUsage() };
  return () => {
    const at = clock.elapsed();
    const cpu = process.cpuUsage();
    const usedMs = (cpu.user - last.cpu.user + cpu.system - last.cpu.system) / 1_000;
    const cpuPercent = at > last.at ? Math.round((usedMs / (at - last.at)) * 1_000) / 10 : 0;
    last = { at, cpu };
    return { cpu_percent: cpuPercent, memory_bytes: process.memoryUsage.rss() };
  };
}
