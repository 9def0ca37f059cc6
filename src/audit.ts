import { hash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { platformOrgId } from "./access/gate.ts";
import type { DutyLoop } from "./cluster/duties.ts";
import type { Keyring } from "./domain/access/keyring/service.ts";
import type { Tenancy } from "./domain/access/tenancy/service.ts";
import { auditOperations, callTrailOf } from "./domain/record/audit/operations.ts";
import { type AuthAudit, auditSettingsOf, openAuthAudit } from "./domain/record/audit/service.ts";
import type { CallTrail } from "./domain/record/history/operations.ts";
import type { Edge } from "./edge/call.ts";
import { rateLimit } from "./edge/rate-limit.ts";
import type { Clock } from "./kit/clock.ts";
import { Fault } from "./kit/fault.ts";
import type { Ids } from "./kit/ids.ts";
import type { Log } from "./kit/log.ts";
import type { LoopOptions } from "./kit/loop.ts";
import type { Call, Operation } from "./kit/operation.ts";
import type { Config } from "./settings.ts";
import type { Store } from "./store/store.ts";

export interface Audit {
  audit: AuthAudit;
  operations: readonly Operation[];
  loop: LoopOptions;
  duty: DutyLoop;
  /** What callers did in an environment, in the form of the trail of runs, for those who may. */
  callTrail(mayRead: (call: Call) => Promise<boolean>): CallTrail;
  /** What watches requests: the given observer, the audit beside it, and the limit of each key. */
  watching(observe: Edge["observe"]): Pick<Edge, "observe" | "limit">;
}

export interface AuditDeps {
  config: Config;
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  keyring: Keyring;
  tenancy: Pick<Tenancy, "findEnvironment">;
  /** Asks for a round of loop `audit.flush` by then. */
  flushIn: (ms: number) => void;
}

/** Where audit rows wait that the database has not got yet: one folder a database. */
function auditSpoolOf(config: Pick<Config, "db" | "databaseUrl" | "auditSpool">): string {
  const { db, databaseUrl, auditSpool } = config;
  if (auditSpool !== undefined) return auditSpool;
  if (databaseUrl === undefined) return `${db}.audit-spool`;
  return join(tmpdir(), `svc-audit-${hash("sha256", databaseUrl, "hex").slice(0, 16)}`);
}

/** What stands beside every call, put together: the record of what was allowed, refused and changed, and the limit of each key. */
export function openAudit(deps: AuditDeps): Audit {
  const { config, store, clock, ids, log, keyring, tenancy, flushIn } = deps;
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
    flushIn,
  });
  const { keyRateLimit: perSecond, keyRateBurst: burst = 2 * perSecond } = config;
  return {
    audit,
    operations: auditOperations(audit),
    loop: {
      name: "audit.flush",
      about:
        "Writes the audit rows that wait in memory and in the spool, and those that a dead process left there.",
      everyMs: 5_000,
      tick: audit.flushOnce,
    },
    duty: {
      duty: "retention",
      name: "audit.forget",
      about: "Cuts audit rows past their retention off the chains, a slice of each org a transaction.",
      everyMs: 10 * 60_000,
      tick: audit.forgetOnce,
    },
    callTrail: (mayRead) => async (query, call) => {
      if (!(await mayRead(call))) throw new Fault("permission_denied", "Insufficient permissions");
      return callTrailOf(audit, call.environmentId, call.caller.orgId, query);
    },
    watching: (observe) => ({
      observe(observation) {
        observe(observation);
        audit.observe(observation);
      },
      ...(perSecond > 0 && { limit: rateLimit({ clock, perSecond, burst }) }),
    }),
  };
}
