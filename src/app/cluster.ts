import { Type } from "@sinclair/typebox";
import type { Keyring } from "../domain/access/keyring/service.ts";
import type { Keys } from "../domain/access/keys/service.ts";
import { clusterOperations } from "../domain/cluster/nodes/operations.ts";
import { openCluster, type Rotated } from "../domain/cluster/nodes/service.ts";
import { overviewOperations } from "../domain/cluster/overview/operations.ts";
import { openOverview } from "../domain/cluster/overview/service.ts";
import { knowsKinds } from "../domain/engine/debounce/arm.ts";
import { knowsOpenWaits } from "../domain/engine/runs/execution/yield-waits.ts";
import { knowsPins } from "../domain/engine/runs/pins/pins.ts";
import type { Flow } from "../domain/record/flow/service.ts";
import type { SystemClock } from "../kit/clock.ts";
import { confirmMs, keyLeaseMs } from "../kit/limits.ts";
import { Waker } from "../kit/loop.ts";
import { version } from "../kit/version.ts";
import { type DutyLoop, dutyLoop } from "../nodes/duties.ts";
import { leadership } from "../nodes/leader.ts";
import { type NodeFacts, openNodes, processUsage } from "../nodes/nodes.ts";
import type { TimeBase } from "../nodes/time-base.ts";
import type { EnginePart } from "./engine.ts";
import type { IdentityPart } from "./identity.ts";
import type { Host, Part, PartShape } from "./part.ts";
import type { RecordPart } from "./record.ts";
import type { AppRights } from "./rights.ts";

const nodesMax = 100;

export type MembersPart = ReturnType<typeof openMembers>;

export interface MembersNeeds {
  clock: SystemClock;
  time: Pick<TimeBase, "uncertaintyMs">;
  keys: Pick<Keys, "forget">;
  keyring: Pick<Keyring, "refresh">;
  /** Where this node listens; empty before it does. */
  url: () => string;
  loopProgress: () => NodeFacts["loops"];
}

const RotatedMessage = Type.Union([
  Type.Object({ kind: Type.Literal("keyring") }),
  Type.Object({ kind: Type.Literal("api_key"), hash: Type.String() }),
]);
/** A node whose last heartbeat is older than this is not waited for. */
const confirmedWithinMs = 10_000;

/** This node and the others: the register of nodes, and what all of them must confirm. */
export function openMembers(host: Host, needs: MembersNeeds) {
  const { store, bus, log, nodeId } = host;
  const { clock, time, keys, keyring, url } = needs;
  const usage = processUsage(clock);
  const heartbeats = new Waker();
  let unbalanced: () => readonly string[] = () => [];
  const nodes = openNodes({
    ...{ store, clock, bus, log, nodeId, version, url },
    facts: () => ({
      ...usage(),
      loops: needs.loopProgress(),
      unbalanced: unbalanced(),
      clock_offset_ms: clock.offset(),
      clock_uncertainty_ms: time.uncertaintyMs(),
      bus_connected: bus.connected(),
      knows: [knowsKinds, knowsOpenWaits, knowsPins],
    }),
  });
  /** A node replies with its id. */
  const rotations = bus.requests("cluster.rotated", RotatedMessage, "text");
  // Others read of the connection in this node's heartbeat: write one now.
  bus.onConnection(heartbeats.wake);

  // From the register: a node that has just come has not heard from every other node over the bus yet.
  async function living(): Promise<string[]> {
    const alive = clock.now() - confirmedWithinMs;
    return (await nodes.list()).filter((node) => node.heartbeatAt > alive).map((node) => node.id);
  }

  async function announce(rotated: Rotated, timeoutMs: number): Promise<string[]> {
    const known = await living();
    const confirmed = await rotations.askAll(rotated, {
      timeoutMs,
      repliesMax: Math.min(nodesMax, known.length),
    });
    return confirmed.sort();
  }
  rotations.answer(async (rotated) => {
    if (rotated.kind === "keyring") await keyring.refresh();
    else keys.forget(rotated.hash);
    return nodeId;
  });

  return {
    nodes,
    /** What the heartbeat says of the balance of stored counts. */
    balancedBy(troubles: () => readonly string[]) {
      unbalanced = troubles;
    },
    operations: [],
    loops: [
      {
        name: "cluster.nodes",
        about: "Writes this node's heartbeat and what it knows of itself.",
        everyMs: 3_000,
        waker: heartbeats,
        tick: nodes.heartbeatOnce,
      },
    ],
    /**
     * Asks every node, this one included, to use what was rotated; resolves with the ids of those that did.
     */
    announce: (rotated: Rotated) => announce(rotated, confirmMs),
    /** Resolves once no node accepts the key with this hash from its memory. */
    async forgetKey(hash: string) {
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
      // A node that did not hear it drops its copy of the key by then.
      await clock.sleep(Math.max(0, keyLeaseMs - (clock.elapsed() - beganAt)));
    },
    /** From now on the others see this node drain. */
    announceDrain: nodes.drain,
    close: nodes.leave,
  } satisfies PartShape;
}

export interface ClusterNeeds {
  identity: IdentityPart;
  rights: Pick<AppRights, "seesDetails">;
  members: MembersPart;
  time: Pick<TimeBase, "uncertaintyMs">;
  /** Of every other part: run here while this node leads them. */
  duties: readonly DutyLoop[];
}

type ClusterPart = ReturnType<typeof openClusterPart>;

/**
 * Leadership, and every duty as a loop that does nothing on nodes that do not lead it; health and rotations.
 */
export function openClusterPart(host: Host, needs: ClusterNeeds) {
  const { store, bus, clock, ids, log, nodeId } = host;
  const { members, rights, identity, time } = needs;
  const { nodes, announce } = members;
  const { keys, keyring, tenancy, platformAudit, platformUsers, register } = identity;
  const { uncertaintyMs } = time;
  const names = [...new Set([...needs.duties.map(({ duty }) => duty), "retention"])];
  const lead = leadership({ store, bus, clock, log, nodeId, duties: names, uncertaintyMs });
  const cluster = openCluster({
    ...{ store, clock, ids, log, nodeId, bus, nodes, keyring, keys, tenancy, announce },
    anyPlatformUser: platformUsers.anyHeld,
    leaders: lead.leaders,
    recordRotated: (session, keyId, by) =>
      platformAudit.record(session, {
        type: "platform.key.revoked",
        by,
        payload: { change: "rotated", key_id: keyId },
      }),
  });
  const duties: DutyLoop[] = [
    ...needs.duties,
    {
      duty: "retention",
      name: "cluster.forget",
      about: "Deletes silent nodes, old rotations, retired secrets and expired sessions.",
      everyMs: 10 * 60_000,
      async tick(write) {
        await write(nodes.forgetSilent);
        await write(cluster.purge);
        await write(keyring.purge);
        await register.forgetExpired(write);
      },
    },
  ];
  return {
    health: cluster.health,
    operations: clusterOperations(cluster, rights.seesDetails),
    loops: [
      {
        name: "cluster.lead",
        about: "Takes or keeps the leadership of each duty.",
        everyMs: 750,
        tick: lead.campaignOnce,
      },
      ...duties.map((duty) => dutyLoop({ store, leadership: lead, log }, duty)),
    ],
    close: lead.resign,
  } satisfies PartShape;
}

export interface OverviewNeeds {
  flow: Pick<Flow, "rates">;
  record: Pick<RecordPart, "lastLook">;
  cluster: Pick<ClusterPart, "health">;
  engine: Pick<EnginePart, "quotas">;
  rights: Pick<AppRights, "seesDetails">;
}

/** How an environment and the cluster are, in one answer. */
export function openOverviewPart(host: Host, { flow, record, cluster, engine, rights }: OverviewNeeds): Part {
  const { store, clock } = host;
  const overview = openOverview({
    ...{ store, clock, startedAt: clock.now() },
    ...{ ratesOf: flow.rates, lastLook: record.lastLook, health: cluster.health },
    quotasOf: engine.quotas.usesOf,
  });
  return { operations: overviewOperations(overview, rights.seesDetails) };
}
