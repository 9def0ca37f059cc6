import { Fault, missing } from "../../../kit/fault.ts";
import { type Basics, type Session, StoreError, type StoreReader } from "../../../store/store.ts";
import type { RoleScope, Roles } from "../roles/service.ts";
import { policiesMax, policyVersionsMax } from "./limits.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

/** The next version of a policy, as `work` of a change makes it from what the session reads. */
export interface PolicyDraft {
  policy: rows.Policy;
  isNew: boolean;
  changeReason: string | null;
}

/** The one way in which policies are written. */
export type PolicyChanges = ReturnType<typeof openPolicyChanges>;

export const nameTaken = (name: string) =>
  new Fault("already_exists", `a policy named "${name}" exists`, { field: "name" });

export function openPolicyChanges(
  deps: Basics<"store" | "clock" | "ids"> & {
    roles: Pick<Roles, "raiseAccess">;
    changed: (orgId: string) => void;
  },
) {
  const { store, clock, ids, roles, changed } = deps;

  const find = async (reader: StoreReader, scope: RoleScope, id: string): Promise<rows.Policy> => {
    const policy = await rows.policyById(reader, scope.orgId, id);
    if (!policy) throw missing("policy", id);
    return policy;
  };

  return {
    /** Throws `not_found` unless the org has the policy. */
    find,

    /**
     * Checks and stores the draft with its version, under the lock of the org: versions of one policy are
     * never skipped.
     */
    async write(
      scope: RoleScope,
      authorId: string,
      work: (session: Session) => Promise<PolicyDraft>,
    ): Promise<rows.Policy> {
      let name = "";
      try {
        const policy = await store.write(async (session) => {
          await roles.raiseAccess(session, scope.orgId);
          const { policy, isNew, changeReason } = await work(session);
          name = policy.name;
          rules.requirePolicy(policy);
          if (policy.version > policyVersionsMax)
            throw new Fault("resource_exhausted", `at most ${policyVersionsMax} versions of a policy`);
          const written = isNew
            ? await rows.insertPolicy(session, policy)
            : await rows.updatePolicy(session, policy);
          if (written === 0) throw nameTaken(name);
          await rows.insertVersion(session, policy, { authorId, changeReason });
          return policy;
        });
        changed(scope.orgId);
        return policy;
      } catch (error) {
        if (error instanceof StoreError && error.trouble === "unique") throw nameTaken(name);
        throw error;
      }
    },

    async remove(scope: RoleScope, id: string) {
      await store.write(async (session) => {
        await roles.raiseAccess(session, scope.orgId);
        await find(session, scope, id);
        await rows.deletePolicy(session, scope.orgId, id);
      });
      changed(scope.orgId);
    },

    /** Throws `resource_exhausted` when the org has as many policies as it may. */
    async requireRoom(session: Session, orgId: string) {
      if ((await rows.policiesOf(session, orgId)).length >= policiesMax)
        throw new Fault("resource_exhausted", `at most ${policiesMax} policies`);
    },

    /** A first version, not yet stored. */
    newPolicy(
      scope: RoleScope,
      text: Pick<rows.Policy, "name" | "actions" | "resources" | "condition">,
    ): rows.Policy {
      const at = clock.now();
      return {
        id: ids.next("pol"),
        orgId: scope.orgId,
        version: 1,
        templateId: null,
        templateVersion: null,
        createdAt: at,
        updatedAt: at,
        ...text,
      };
    },
  };
}
