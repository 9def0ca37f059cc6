import type { Bus } from "./bus/bus.ts";
import { type DutyLoop, dutyLoop } from "./cluster/duties.ts";
import { leadership } from "./cluster/leader.ts";
import { type NodeFacts, openNodes, processUsage } from "./cluster/nodes.ts";
import type { Keyring } from "./domain/access/keyring/service.ts";
import type { Keys } from "./domain/access/keys/service.ts";
import type { PlatformAudit } from "./domain/access/platform/audit.ts";
import type { SessionRegister } from "./domain/access/sessions/register.ts";
import type { Tenancy } from "./domain/access/tenancy/service.ts";
import { clusterOperations } from "./domain/cluster/nodes/operations.ts";
import { openCluster, type Rotated } from "./domain/cluster/nodes/service.ts";
import type { SystemClock } from "./kit/clock.ts";
import type { Ids } from "./kit/ids.ts";
import { confirmMs, keyLeaseMs, nodesMax } from "./kit/limits.ts";
import type { Log } from "./kit/log.ts";
import type { LoopOptions } from "./kit/loop.ts";
import type { Operation } from "./kit/operation.ts";
import type { Store } from "./store/store.ts";
import type { Tenants } from "./tenants.ts";

export interface ClusterPart {
  operations: readonly Operation[];
  loops: readonly LoopOptions[];
  /** Resolves once no node believes any more what it knew of the key with this hash. */
  forgetKey(hash: string): Promise<void>;
  /** From now on the others see this node drain. */
  drain(): Promise<void>;
  /** Gives up what it leads, and goes off the list. */
  leave(): Promise<void>;
}

export interface MembersDeps {
  store: Store;
  bus: Bus;
  clock: SystemClock;
  ids: Ids;
  log: Log;
  nodeId: string;
  version: string;
  url: () => string;
  keys: Keys;
  keyring: Keyring;
  tenancy: Pick<Tenancy, "shareOrg">;
  register: Pick<SessionRegister, "forgetExpired">;
  /** Put together later. */
  tenants: () => Pick<Tenants, "anyPlatformUser" | "seesDetails">;
  platformAudit: Pick<PlatformAudit, "record">;
  /** What one node does for all, besides what the cluster itself needs. */
  duties: readonly DutyLoop[];
  uncertaintyMs: () => number;
  loopFacts: () => NodeFacts["loops"];
}

const told = new TextDecoder();
/** A node that gave no sign of life for so long is not waited for. */
const confirmedWithinMs = 10_000;

/** This node among its kind, put together: the register, leadership and its duties, rotations. */
export function openClusterPart(deps: MembersDeps): ClusterPart {
  const { store, bus, clock, ids, log, nodeId, version, url, keys, keyring, uncertaintyMs } = deps;
  const usage = processUsage(clock);
  const nodes = openNodes({
    store,
    clock,
    bus,
    nodeId,
    version,
    url,
    facts: () => ({
      ...usage(),
      loops: deps.loopFacts(),
      clock_offset_ms: clock.offset(),
      clock_uncertainty_ms: uncertaintyMs(),
      bus_connected: bus.connected(),
    }),
  });

  const duties: DutyLoop[] = [
    ...deps.duties,
    {
      duty: "retention",
      name: "cluster.forget",
      about: "Deletes silent nodes, old rotations, retired secrets and expired sessions.",
      everyMs: 10 * 60_000,
      async tick(write) {
        await write(nodes.forgetSilent);
        await write(cluster.purge);
        await write(keyring.purge);
        await deps.register.forgetExpired(write);
      },
    },
  ];
  const names = [...new Set(duties.map(({ duty }) => duty))];
  const lead = leadership({ store, bus, clock, log, nodeId, duties: names, uncertaintyMs });

  const cluster = openCluster({
    store,
    clock,
    ids,
    log,
    nodeId,
    bus,
    nodes,
    keyring,
    keys,
    tenancy: deps.tenancy,
    anyPlatformUser: (session) => deps.tenants().anyPlatformUser(session),
    leaders: lead.leaders,
    announce: (rotated) => announce(rotated, confirmMs),
    recordRotated: (session, keyId, by) =>
      deps.platformAudit.record(session, {
        type: "platform.key.revoked",
        by,
        payload: { change: "rotated", key_id: keyId },
      }),
  });

  // By the register: a node that has just come has not heard everybody yet.
  async function living(): Promise<string[]> {
    const alive = clock.now() - confirmedWithinMs;
    return (await nodes.list()).filter((node) => node.heartbeatAt > alive).map((node) => node.id);
  }

  async function announce(rotated: Rotated, timeoutMs: number): Promise<string[]> {
    const known = await living();
    const replies = await bus.requestMany("cluster.rotated", JSON.stringify(rotated), {
      timeoutMs,
      repliesMax: Math.min(nodesMax, known.length),
    });
    return replies.map((reply) => told.decode(reply)).sort();
  }
  bus.onRequest("cluster.rotated", async (payload) => {
    const rotated = JSON.parse(told.decode(payload)) as Rotated;
    if (rotated.kind === "keyring") await keyring.refresh();
    else keys.forget(rotated.hash);
    return nodeId;
  });

  return {
    operations: clusterOperations(cluster, (call) => deps.tenants().seesDetails(call)),
    loops: [
      {
        name: "cluster.nodes",
        about: "Writes this node's heartbeat and what it knows of itself.",
        everyMs: 3_000,
        tick: nodes.heartbeatOnce,
      },
      {
        name: "cluster.lead",
        about: "Takes or keeps the leadership of each duty.",
        everyMs: 750,
        tick: lead.campaignOnce,
      },
      ...duties.map((duty) => dutyLoop({ store, leadership: lead, log }, duty)),
    ],
    async forgetKey(hash) {
      keys.forget(hash);
      const beganAt = clock.elapsed();
      try {
        const known = await living();
        if (known.every((id) => id === nodeId)) return;
        const confirmed = new Set(await announce({ kind: "api_key", hash }, keyLeaseMs));
        if (known.every((id) => confirmed.has(id))) return;
      } catch (error) {
        log.warn("keys.forget_unconfirmed", { error });
      }
      // Whoever did not hear it stops believing by then.
      await clock.sleep(Math.max(0, keyLeaseMs - (clock.elapsed() - beganAt)));
    },
    drain: nodes.drain,
    async leave() {
      await lead.resign();
      await nodes.leave();
    },
  };
}
