import type { Snapshots } from "../../../gate/gate.ts";
import { type AccessSnapshot, type Compiled, compilePolicies, snapshotOf } from "../../../gate/snapshot.ts";
import { breather } from "../../../kit/breather.ts";
import type { Clock } from "../../../kit/clock.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Store } from "../../../store/store.ts";
import { accessKeptMs, accessOrgsMax } from "./limits.ts";
import * as rows from "./rows.ts";

export interface OrgSnapshots extends Snapshots {
  /** This node changed roles or policies of the org. */
  forget(orgId: string): void;
}

/**
 * Snapshots of roles and policies by org, cached for half a second. After that `openSnapshots` reads the
 * org's version, and the rest only when the version has grown. Every node obeys a change within a second,
 * also without the bus.
 */
export function openSnapshots({ store, clock }: { store: Store; clock: Clock }): OrgSnapshots {
  const last = new Map<string, { snapshot: AccessSnapshot; compiled: Compiled }>();
  const nothingCompiled: Compiled = new Map();

  const kept = ttlCache<AccessSnapshot>({
    clock,
    keptMs: accessKeptMs,
    entriesMax: accessOrgsMax,
    async read(orgId) {
      const version = await rows.accessVersion(store, orgId);
      const before = last.get(orgId);
      if (before && before.snapshot.version === version) return before.snapshot;
      const read = version === undefined ? undefined : await rows.readSnapshot(store, orgId);
      last.delete(orgId);
      if (!read) return undefined;
      const known = before?.compiled ?? nothingCompiled;
      const compiled = await compilePolicies(read.policies, known, breather(clock, orgId));
      const snapshot = snapshotOf(read, compiled);
      if (last.size >= accessOrgsMax) last.delete(last.keys().next().value!);
      last.set(orgId, { snapshot, compiled });
      return snapshot;
    },
  });
  // An org that is gone grants nothing.
  const nothing = (orgId: string) => snapshotOf({ orgId, version: 0, roles: [], policies: [], assigned: [] });
  return {
    known: kept.peek,
    of: async (orgId) => (await kept.get(orgId)) ?? nothing(orgId),
    forget: kept.forget,
  };
}
