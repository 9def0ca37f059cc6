import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Call } from "../../../kit/operation.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { RoleScope, Roles } from "../roles/service.ts";
import type { Tenancy } from "../tenancy/service.ts";
import { countKeys, type HeldKey, keysOf, type ListedKey, listedKey, setRoleIds } from "./rows.ts";
import * as rules from "./rules.ts";
import type { Keys } from "./service.ts";

const keyNameCharsMax = 200;
const keyRolesMax = 50;
const keysMax = 10_000;

export type { ListedKey } from "./rows.ts";

export interface KeyInput {
  name: string;
  environmentId?: string;
  /** The caller's own when left out: by default a key has no more rights than its creator. */
  roleIds?: readonly string[];
  /** `720h`. */
  expiresIn?: string;
}

/** Keys as admins of an org, or of the platform, manage them. */
export type KeyManagement = ReturnType<typeof openKeyManagement>;

/** What a change did to a key. */
export interface KeyChange {
  change: "created" | "deleted" | "rotated" | "roles_replaced";
  key_id: string;
  name?: string;
  role_ids?: readonly string[];
}

export interface KeyManagementDeps extends Basics<"store" | "clock"> {
  keys: Keys;
  roles: Pick<Roles, "idsOf" | "known">;
  tenancy: Pick<Tenancy, "findEnvironment" | "shareOrg" | "shareEnvironment">;
  /** Makes every node drop the cached key with this hash, within `keyLeaseMs`. */
  forgetEverywhere: (hash: string) => Promise<void>;
  /** Called for each change, in its transaction. */
  record?: (session: Session, scope: RoleScope, change: KeyChange) => Promise<void>;
}

function readName(name: string): string {
  const text = name.trim();
  if (text === "") throw invalid("name", "must not be empty");
  if (text.length > keyNameCharsMax) throw invalid("name", `at most ${keyNameCharsMax} characters`);
  if (/\p{Cc}/u.test(text) || !text.isWellFormed())
    throw invalid("name", "must not contain control characters");
  return text;
}

function requireOwn<Key extends ListedKey>(scope: RoleScope, id: string, key: Key | undefined): Key {
  if (!key || key.orgId !== scope.orgId || key.isPlatform !== (scope.kind === "platform"))
    throw missing("api key", id);
  return key;
}

/** The roles of the caller that still exist. */
async function ownRoles(
  roles: Pick<Roles, "known">,
  session: Session,
  scope: RoleScope,
  { caller }: Call,
): Promise<string[]> {
  const known = new Set((await roles.known(session, scope)).map(({ id }) => id));
  return caller.roles.filter((id) => known.has(id));
}

/** Every change locks the org, then the key, until it commits. */
export function openKeyManagement(deps: KeyManagementDeps) {
  const { store, clock, keys, roles, tenancy, forgetEverywhere, record } = deps;

  async function hold(session: Session, scope: RoleScope, id: string): Promise<HeldKey> {
    await tenancy.shareOrg(session, scope.orgId);
    return requireOwn(scope, id, await keys.hold(session, id, scope.orgId));
  }

  async function readRoles(
    session: Session,
    scope: RoleScope,
    roleIds: readonly string[],
  ): Promise<string[]> {
    if (roleIds.length > keyRolesMax) throw invalid("role_ids", `at most ${keyRolesMax}`);
    return roles.idsOf(session, scope, "role_ids", roleIds);
  }

  /** At most one environment, of the caller's org; a platform key has none. */
  async function readEnvironment(scope: RoleScope, input: KeyInput, call: Call): Promise<string | null> {
    if (scope.kind === "platform") {
      if (input.environmentId !== undefined) throw invalid("env_id", "platform keys have no environment");
      return null;
    }
    if (input.environmentId === undefined) return call.environmentId || null;
    const environment = await tenancy.findEnvironment(input.environmentId);
    if (environment?.orgId !== scope.orgId) throw invalid("env_id", "unknown environment");
    return environment.id;
  }

  async function forget(hash: string): Promise<void> {
    keys.forget(hash);
    await forgetEverywhere(hash);
  }

  return {
    async create(scope: RoleScope, input: KeyInput, call: Call): Promise<{ key: string; row: ListedKey }> {
      const name = readName(input.name);
      const expiresIn =
        input.expiresIn === undefined ? undefined : rules.readDuration("expires_in", input.expiresIn);
      // Read before the write: an environment never moves to another org.
      const environmentId = await readEnvironment(scope, input, call);
      if (input.roleIds === undefined && scope.kind === "tenant" && call.caller.kind === "platform")
        throw invalid("role_ids", "must be given: the caller's own are the platform's");
      const createdAt = clock.now();
      const { key, row } = keys.make({
        orgId: scope.orgId,
        environmentId,
        name,
        roleIds: [],
        createdAt,
        isPlatform: scope.kind === "platform",
        ...(expiresIn !== undefined && { expiresAt: createdAt + expiresIn }),
      });
      const made = await store.write(async (session) => {
        await tenancy.shareOrg(session, scope.orgId);
        if (environmentId !== null) await tenancy.shareEnvironment(session, environmentId);
        const roleIds = input.roleIds
          ? await readRoles(session, scope, input.roleIds)
          : await ownRoles(roles, session, scope, call);
        if ((await countKeys(session, scope.orgId)) >= keysMax)
          throw new Fault("resource_exhausted", `at most ${keysMax} keys`);
        await keys.insert(session, { ...row, roleIds });
        await record?.(session, scope, { change: "created", key_id: row.id, name, role_ids: roleIds });
        return requireOwn(scope, row.id, await listedKey(session, row.id));
      });
      keys.forget(row.hash);
      return { key, row: made };
    },

    list: async (scope: RoleScope) =>
      (await keysOf(store, scope.orgId)).filter((key) => key.isPlatform === (scope.kind === "platform")),
    get: async (scope: RoleScope, id: string) => requireOwn(scope, id, await listedKey(store, id)),

    /** Resolves once no node accepts the key any more. */
    async remove(scope: RoleScope, id: string) {
      const hash = await store.write(async (session) => {
        const { hash, name } = await hold(session, scope, id);
        await keys.removeExactly(session, id, hash);
        await record?.(session, scope, { change: "deleted", key_id: id, name });
        return hash;
      });
      await forget(hash);
    },

    /** Gives the key a new text; the old one is refused from then on. */
    async rotate(scope: RoleScope, id: string): Promise<{ key: string; row: ListedKey }> {
      const { key } = keys.make({
        orgId: scope.orgId,
        environmentId: null,
        name: "",
        roleIds: [],
        isPlatform: scope.kind === "platform",
      });
      const { before, row } = await store.write(async (session) => {
        const { name } = await hold(session, scope, id);
        const before = await keys.rekey(session, id, scope.orgId, key);
        await record?.(session, scope, { change: "rotated", key_id: id, name });
        return { before, row: requireOwn(scope, id, await listedKey(session, id)) };
      });
      await forget(before);
      return { key, row };
    },

    async setRoles(scope: RoleScope, id: string, wanted: readonly string[]): Promise<ListedKey> {
      const { hash, row } = await store.write(async (session) => {
        const { hash } = await hold(session, scope, id);
        const roleIds = await readRoles(session, scope, wanted);
        await setRoleIds(session, id, roleIds);
        await record?.(session, scope, { change: "roles_replaced", key_id: id, role_ids: roleIds });
        return { hash, row: requireOwn(scope, id, await listedKey(session, id)) };
      });
      await forget(hash);
      return row;
    },
  };
}
