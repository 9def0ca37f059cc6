import { type Gate, openGate } from "./access/gate.ts";
import type { Keys } from "./domain/keys/service.ts";
import { policiesOperations, policyToolsOperations, tenantPolicies } from "./domain/policies/operations.ts";
import { openPolicies } from "./domain/policies/service.ts";
import { openSnapshots } from "./domain/policies/snapshots.ts";
import { rolesOperations, tenantRoles } from "./domain/roles/operations.ts";
import { openRoles } from "./domain/roles/service.ts";
import type { Tenancy } from "./domain/tenancy/service.ts";
import type { Clock } from "./kit/clock.ts";
import type { Ids } from "./kit/ids.ts";
import type { Operation } from "./kit/operation.ts";
import type { Store } from "./store/store.ts";

export interface Tenants {
  /** What every call passes before it is handled. */
  gate: Gate;
  operations: readonly Operation[];
}

export interface TenantsDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  tenancy: Tenancy;
  keys: Keys;
}

/** Who may do what, put together: keys, roles, policies, and the gate that obeys them. */
export function openTenants({ store, clock, ids, tenancy, keys }: TenantsDeps): Tenants {
  const snapshots = openSnapshots({ store, clock });
  const changed = snapshots.forget;
  const roles = openRoles({ store, clock, ids, changed });
  const policies = openPolicies({ store, clock, ids, roles, changed });
  return {
    gate: openGate({ snapshots, placeOf: tenancy.placeOf, now: clock.now }),
    operations: [
      ...rolesOperations({ roles, keyCounts: keys.roleCounts }, tenantRoles),
      ...policiesOperations(policies, roles, tenantPolicies),
      ...policyToolsOperations(policies),
    ],
  };
}
