import { Type } from "@sinclair/typebox";
import { openDeletion } from "../domain/access/tenancy/deletion.ts";
import { openEnvironments } from "../domain/access/tenancy/environments.ts";
import { environmentsOperations } from "../domain/access/tenancy/operations.ts";
import { orgsOperations, projectsOperations } from "../domain/access/tenancy/org-operations.ts";
import { openOrgs } from "../domain/access/tenancy/orgs.ts";
import { openPurge } from "../domain/access/tenancy/purge.ts";
import type { People } from "./identity.ts";
import type { Host, PartShape } from "./part.ts";

/** What a node tells the others of environments that it deleted. */
const DeletedEnvironments = Type.Array(
  Type.Object({
    id: Type.String(),
    orgId: Type.String(),
    projectId: Type.Union([Type.String(), Type.Null()]),
    name: Type.String(),
  }),
);

export interface TenancyNeeds {
  people: People;
  /** The environment was deleted: nothing of it is handed out any more. */
  forgetEnvironment: (environmentId: string) => void;
  /** Resolves once no node accepts the key with this hash from its memory. */
  forgetKey: (hash: string) => Promise<void>;
}

/** Orgs, projects and environments: made, changed, and deleted with everything in them. */
export function openTenancyPart(host: Host, needs: TenancyNeeds) {
  const { store, clock, ids, bus, frames } = host;
  const { tenancy, keys } = needs.people;
  const forgetEverywhere = needs.forgetKey;
  const deleted = bus.channel("tenancy.deleted", DeletedEnvironments);
  const deletion = openDeletion({
    ...{ store, clock, forgetEverywhere },
    onGone(environments) {
      tenancy.forget(environments);
      for (const { id } of environments) needs.forgetEnvironment(id);
    },
    publishHint: (environments) => deleted.publish([...environments]),
    onFrame: ({ environmentId, topic, payload }) => frames.publish(environmentId, topic, payload),
    forgetKeys: (hashes) => hashes.forEach(keys.forget),
  });
  deleted.listen(deletion.onDeletedElsewhere);
  const environments = openEnvironments({
    ...{ store, clock, ids, keys, deletion, forgetEverywhere },
    changed: (environment) => tenancy.forget([environment]),
  });
  const orgs = openOrgs({ store, clock, ids, keys, deletion, changed: tenancy.forgetOrg });
  const { duty } = openPurge({ store, clock, metrics: host.watch.metrics });
  return {
    orgs,
    isGoing: deletion.isGoing,
    operations: [
      ...environmentsOperations(environments),
      ...projectsOperations(orgs),
      ...orgsOperations(orgs),
    ],
    loops: [
      {
        name: "tenancy.follow",
        about: "Takes notice of environments that other nodes deleted.",
        everyMs: 1_000,
        tick: deletion.followOnce,
      },
    ],
    duties: [duty],
  } satisfies PartShape;
}
