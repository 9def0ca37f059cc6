import { irnOf } from "../../../gate/resource.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { StoredRow } from "./rows.ts";
import type { AuditEntry, AuditHead } from "./rules.ts";
import * as rules from "./rules.ts";

/** The row that says that a head was not what this installation had signed. */
export const mismatchEntry = (
  orgId: string,
  reason: string,
  { id, at }: { id: string; at: Instant },
): AuditEntry => ({
  id,
  orgId,
  at,
  eventType: rules.mismatchEvent,
  operation: "audit.append",
  action: "",
  reads: false,
  environmentId: "",
  resourceType: "audit",
  resourceId: "*",
  allowed: true,
  rule: "",
  outcome: "ok",
  callerKind: "system",
  callerId: "",
  roles: [],
  impersonatedOrgId: "",
  requestId: "",
  payload: JSON.stringify({ reason }),
  removed: "",
});

/** The rows behind a head: each carries the hash of the row before it, under a secret of the keyring. */
export function linked(
  key: { id: string; secret: string },
  head: AuditHead,
  entries: readonly AuditEntry[],
  projects: ReadonlyMap<string, string>,
): StoredRow[] {
  const { id: keyId, secret } = key;
  let { sequence, hash } = head;
  return entries.map(({ resourceType, resourceId, roles, ...entry }) => {
    const { orgId, environmentId } = entry;
    const resource = irnOf({
      orgId,
      projectId: projects.get(environmentId) ?? "*",
      type: resourceType,
      environmentId: environmentId || "*",
      environmentName: "",
      id: resourceId,
    });
    sequence++;
    const row = { ...entry, resource, roles: JSON.stringify(roles), sequence, keyId };
    hash = rules.rowHash(secret, hash, row);
    return { ...row, hash };
  });
}
