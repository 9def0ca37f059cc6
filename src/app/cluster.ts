import { clusterOperations } from "../domain/cluster/nodes/operations.ts";
import { openCluster } from "../domain/cluster/nodes/service.ts";
import { type DutyLoop, dutyLoop } from "../nodes/duties.ts";
import { leadership } from "../nodes/leader.ts";
import type { TimeBase } from "../nodes/time-base.ts";
import type { IdentityPart } from "./identity.ts";
import type { MembersPart } from "./members.ts";
import type { Host, PartShape } from "./part.ts";
import type { AppRights } from "./rights.ts";

export interface ClusterNeeds {
  identity: IdentityPart;
  rights: Pick<AppRights, "seesDetails">;
  members: MembersPart;
  time: Pick<TimeBase, "uncertaintyMs">;
  /** Of every other part: run here while this node leads them. */
  duties: readonly DutyLoop[];
}

export type ClusterPart = ReturnType<typeof openClusterPart>;

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
