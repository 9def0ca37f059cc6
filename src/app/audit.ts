import { hash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Keyring } from "../domain/access/keyring/service.ts";
import type { Tenancy } from "../domain/access/tenancy/service.ts";
import { auditOperations, callTrailOf } from "../domain/record/audit/operations.ts";
import { auditSettingsOf, openAuthAudit } from "../domain/record/audit/service.ts";
import type { CallTrail } from "../domain/record/history/operations.ts";
import { platformOrgId } from "../gate/gate.ts";
import { Waker } from "../kit/loop.ts";
import type { Call } from "../kit/operation.ts";
import type { Config } from "../settings/settings.ts";
import type { Host, PartShape } from "./part.ts";

export type AuditPart = ReturnType<typeof openAuditPart>;

export interface AuditNeeds {
  keyring: Keyring;
  tenancy: Pick<Tenancy, "findEnvironment">;
}

/** The folder for audit rows that the database has not got yet: one a database. */
function auditSpoolOf(config: Pick<Config, "db" | "databaseUrl" | "auditSpool">): string {
  const { db, databaseUrl, auditSpool } = config;
  if (auditSpool !== undefined) return auditSpool;
  if (databaseUrl === undefined) return `${db}.audit-spool`;
  return join(tmpdir(), `svc-audit-${hash("sha256", databaseUrl, "hex").slice(0, 16)}`);
}

/** The record of what was allowed, refused and changed. */
export function openAuditPart(host: Host, { keyring, tenancy }: AuditNeeds) {
  const { config, store, clock, ids, log } = host;
  const flushes = new Waker();
  const audit = openAuthAudit({
    store,
    clock,
    ids,
    log,
    keys: { current: () => keyring.current("audit_key"), find: (id) => keyring.find("audit_key", id) },
    settings: auditSettingsOf(config),
    spoolFolder: auditSpoolOf(config),
    scopeOf: tenancy.findEnvironment,
    platformOrgId,
    flushIn: flushes.wakeIn,
    onWritten: (orgId) => host.changes.ofOrg(orgId, "audit"),
  });
  return {
    audit,
    operations: auditOperations(audit),
    loops: [
      {
        name: "audit.flush",
        about:
          "Writes the audit rows that wait in memory and in the spool, and those that a dead process left there.",
        everyMs: 5_000,
        waker: flushes,
        tick: audit.flushOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "audit.forget",
        about: "Cuts audit rows past their retention off the chains, a slice of each org a transaction.",
        everyMs: 10 * 60_000,
        tick: audit.forgetOnce,
      },
    ],
    /**
     * What callers did in an environment, in the form of the trail of runs; `requireRead` throws for who may
     * not.
     */
    callTrail:
      (requireRead: (call: Call) => Promise<void>): CallTrail =>
      async (query, call) => {
        await requireRead(call);
        return callTrailOf(audit, call.environmentId, call.caller.orgId, query);
      },
    close: audit.close,
  } satisfies PartShape;
}
