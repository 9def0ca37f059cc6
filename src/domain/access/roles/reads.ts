import { roleIdOf } from "../../../gate/actions.ts";
import { invalid, missing } from "../../../kit/fault.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import { defaultOrgId } from "../tenancy/rules.ts";
import type { Role, RoleScope } from "./role.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

/** No table has the built-in roles: every read joins them with the org's own. */
export function openRoleReads(store: Store) {
  let installedAt: number | undefined;
  /** The default org is made at the first start and never deleted. */
  async function installationTime(): Promise<number> {
    installedAt ??= await rows.orgCreatedAt(store, defaultOrgId);
    return installedAt ?? 0;
  }

  async function get(scope: RoleScope, id: string): Promise<Role> {
    const [row, counts] = await Promise.all([
      rows.roleById(store, scope.orgId, id),
      rows.policyCounts(store, scope.orgId),
    ]);
    const known = rules.builtIn(scope, id);
    if (known)
      return rules.builtInRole(scope, known, {
        policyCount: counts.get(id) ?? 0,
        createdAt: await installationTime(),
      });
    if (!row) throw missing("role", id);
    return rules.ownRole(row, counts.get(id) ?? 0);
  }

  const known = async (reader: StoreReader, scope: RoleScope) => [
    ...rules.builtInOf(scope).map((role) => ({ id: roleIdOf(role), name: role as string })),
    ...(await rows.rolesOf(reader, scope.orgId)),
  ];

  return {
    get,
    /**
     * Every role of the scope. Pass the session, which holds the org, when the answer decides what is
     * written.
     */
    known,

    async list(scope: RoleScope): Promise<Role[]> {
      const [own, counts, createdAt] = await Promise.all([
        rows.rolesOf(store, scope.orgId),
        rows.policyCounts(store, scope.orgId),
        installationTime(),
      ]);
      return [
        ...rules
          .builtInOf(scope)
          .map((role) =>
            rules.builtInRole(scope, role, { policyCount: counts.get(roleIdOf(role)) ?? 0, createdAt }),
          ),
        ...own.map((row) => rules.ownRole(row, counts.get(row.id) ?? 0)),
      ];
    },

    /** Ids of roles that are named by id or name. Throws `invalid(field)`; the session holds the org. */
    async idsOf(
      session: Session,
      scope: RoleScope,
      field: string,
      words: readonly string[],
    ): Promise<string[]> {
      const all = await known(session, scope);
      const ids = words.map((word) => {
        const role = all.find(({ id }) => id === word) ?? all.find(({ name }) => name === word);
        if (!role) throw invalid(field, `role ${word.slice(0, 80)} not found`);
        return role.id;
      });
      return [...new Set(ids)];
    },
  };
}
