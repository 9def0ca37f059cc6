import type { Clock } from "../../../kit/clock.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Store } from "../../../store/store.ts";
import { type Environment, environmentById, environmentByName, oldestEnvironment, orgById } from "./rows.ts";

/** A changed or deleted environment is noticed after this at the latest. */
const environmentLeaseMs = 500;
const environmentsRemembered = 10_000;
const nameKey = (orgId: string, name: string) => `${orgId} ${name}`;

/** What this node knows of orgs and environments, each answer for `environmentLeaseMs`. */
export function openLookups({ store, clock }: { store: Store; clock: Clock }) {
  const lease = { clock, keptMs: environmentLeaseMs, entriesMax: environmentsRemembered };
  const byId = ttlCache<Environment>({ ...lease, read: (id) => environmentById(store, id) });
  const byName = ttlCache<Environment>({
    ...lease,
    read(key) {
      const space = key.indexOf(" ");
      return environmentByName(store, key.slice(0, space), key.slice(space + 1));
    },
  });
  const orgs = ttlCache<{ id: string }>({ ...lease, read: (id) => orgById(store, id) });
  const homes = ttlCache<Environment>({ ...lease, read: (orgId) => oldestEnvironment(store, orgId) });

  return {
    /** Name and project of an environment; undefined when it is gone. */
    environment: byId.get,
    environmentNamed: (orgId: string, name: string) => byName.get(nameKey(orgId, name)),
    org: orgs.get,
    /** The oldest environment of the org. */
    home: homes.get,

    /** The environment is new: this node may have noted that there is none. */
    forgetMissing({ id, orgId, name }: Pick<Environment, "id" | "orgId" | "name">): void {
      byId.forget(id);
      byName.forget(nameKey(orgId, name));
    },
    /** Drops what this node cached of these environments. */
    forget(environments: readonly Pick<Environment, "id" | "orgId" | "name">[]): void {
      for (const { id, orgId, name } of environments) {
        byId.forget(id);
        byName.forget(nameKey(orgId, name));
        homes.forget(orgId);
      }
    },
    /** The same for an org. */
    forgetOrg(orgId: string): void {
      orgs.forget(orgId);
      homes.forget(orgId);
    },
  };
}
