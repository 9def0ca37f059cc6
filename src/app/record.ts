import { hash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Keyring } from "../domain/access/keyring/service.ts";
import { purgeBacklogOf } from "../domain/access/tenancy/purge.ts";
import type { Tenancy } from "../domain/access/tenancy/service.ts";
import { statusOf } from "../domain/engine/runs/rules.ts";
import type { ExecutionState } from "../domain/engine/runs/run.ts";
import { openSweep } from "../domain/engine/runs/wakes/sweep.ts";
import { auditOperations, callTrailOf } from "../domain/record/audit/operations.ts";
import { redactPayload } from "../domain/record/audit/redaction.ts";
import { auditSettingsOf, openAuthAudit } from "../domain/record/audit/service.ts";
import { causalityOperations } from "../domain/record/causality/operations.ts";
import { openCausality } from "../domain/record/causality/service.ts";
import { erasureOperations } from "../domain/record/erasure/operations.ts";
import { openErasure } from "../domain/record/erasure/service.ts";
import { exportOperations } from "../domain/record/export/operations.ts";
import { openExports } from "../domain/record/export/service.ts";
import { flowWriteMs } from "../domain/record/flow/limits.ts";
import { flowOperations } from "../domain/record/flow/operations.ts";
import { openFlow } from "../domain/record/flow/service.ts";
import { type CallTrail, historyOperations } from "../domain/record/history/operations.ts";
import { openHistory } from "../domain/record/history/service.ts";
import { integrityOperations } from "../domain/record/integrity/operations.ts";
import { openIntegrity } from "../domain/record/integrity/service.ts";
import { requestsOperations } from "../domain/record/requests/operations.ts";
import { type CapturedRequests, openCapturedRequests } from "../domain/record/requests/service.ts";
import { retentionOperations } from "../domain/record/retention/operations.ts";
import { openRetention } from "../domain/record/retention/service.ts";
import { usageWriteMs } from "../domain/record/usage/limits.ts";
import { usageOperations } from "../domain/record/usage/operations.ts";
import { openUsage } from "../domain/record/usage/service.ts";
import { statusOfKind } from "../edge/fault-encoding.ts";
import { platformOrgId } from "../gate/gate.ts";
import { Fault, type FaultKind } from "../kit/fault.ts";
import { Waker } from "../kit/loop.ts";
import type { Call } from "../kit/operation.ts";
import { version } from "../kit/version.ts";
import { expireEveryMs, keptMs } from "../settings/retention.ts";
import type { Config } from "../settings/settings.ts";
import type { EnginePart } from "./engine.ts";
import { foldParts, type Host, type Part, type PartShape } from "./part.ts";

export type RecordPart = ReturnType<typeof openRecord>;

export interface RecordNeeds {
  engine: Pick<EnginePart, "definitionAt" | "runs" | "quotas" | "observers" | "steering">;
  /** Whose invariants are checked, and whose readers retention does not overtake. */
  parts: readonly Part[];
  /** What callers did, for the history of an environment. */
  callTrail?: CallTrail;
  /** Forgets the captured requests of an org. */
  forgetCaptures: (orgId: string) => Promise<void>;
}

/** While a snapshot is held, a look of the sweeper walks over index entries of all runs that ended since. */
const sweepShareMax = 0.1;

/** What explains runs and keeps them whole: history, retention, integrity and the sweeper. */
export function openRecord(host: Host, { engine, parts, callTrail, forgetCaptures }: RecordNeeds) {
  const { config, store, clock, log } = host;
  const { metrics } = host.watch;
  const { definitionAt: definitionOf, runs, quotas, observers, steering } = engine;
  const { checks, floorGuards } = foldParts(parts);
  const kept = keptMs(config);
  const retention = openRetention({
    ...{ store, clock, log, metrics, kept, definitionOf, floorGuards },
    forgetBytes: quotas.forgetBytes,
  });
  const erasure = openErasure({
    ...{ store, clock, log, forgetCaptures, deleteRuns: retention.deleteRuns },
    forgetBytes: quotas.forgetBytes,
  });
  const history = openHistory({ store, clock, runs, definitionOf, retentionDaysOf: retention.runDaysOf });
  const causality = openCausality({
    store,
    statusOf: (stored, state) => statusOf(stored, state as ExecutionState | null).status,
    async cancel(environmentId, runId, reason) {
      try {
        await steering.cancel(environmentId, runId, reason);
        return true;
      } catch (error) {
        // It ended by itself meanwhile.
        if (error instanceof Fault && ["failed_precondition", "aborted"].includes(error.kind)) return false;
        throw error;
      }
    },
  });
  const integrity = openIntegrity({ store, clock, log, metrics, checks });
  const sweepOnce = openSweep({
    store,
    clock,
    wakeOnce: () => runs.wakeOnce(true),
    healed: integrity.healed,
    onQueued: observers.queued,
    definitionOf,
  });
  return {
    operations: [
      ...historyOperations(history, callTrail),
      ...causalityOperations(causality),
      ...integrityOperations(integrity, purgeBacklogOf(store)),
      ...retentionOperations(retention),
      ...erasureOperations(erasure),
    ],
    loops: [
      {
        name: "integrity.look",
        about: "Checks the invariants of some environments, for `/health` and metrics.",
        everyMs: 30_000,
        tick: integrity.lookOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "events.expire",
        about: "Raises the floors of event logs and deletes the events below them, a slice a transaction.",
        everyMs: expireEveryMs(kept.events),
        tick: retention.expireEvents,
      },
      {
        duty: "retention",
        name: "runs.expire",
        about: "Deletes old runs that are over, with their steps and history, a slice a transaction.",
        everyMs: expireEveryMs(kept.runs),
        tick: retention.expireRuns,
      },
      {
        duty: "retention",
        name: "runs.sweep",
        about: "Moves runs that are overdue, and compares runs with their executions, a slice a tick.",
        everyMs: 5_000,
        shareMax: sweepShareMax,
        tick: sweepOnce,
      },
    ],
    /** What `/health` says of invariants that do not hold. */
    warnings: integrity.warnings,
    troubles: integrity.troubles,
    lastLook: integrity.lastLook,
  } satisfies PartShape;
}

/** What leaves the installation as a whole. */
export function openExportsPart({ store, clock, ids, log }: Host): Part {
  const exports = openExports({
    ...{ store, clock, log, newHolder: ids.uuid, version },
    memory: {
      collect: () => Bun.gc(false),
      resident: () => process.memoryUsage.rss(),
      giveBack: () => Bun.shrink(),
    },
  });
  return { operations: exportOperations(exports) };
}

/** How much an environment uses, by day and function. */
export function openUsagePart({ store, clock, log }: Host) {
  const usage = openUsage({ store, clock });
  return {
    usage,
    operations: usageOperations(usage),
    loops: [
      {
        name: "usage.write",
        about: "Adds what this node has counted since its last tick to the counts of the day.",
        everyMs: usageWriteMs,
        tick: usage.writeOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "usage.forget",
        about: "Deletes counts of days that are too long ago.",
        everyMs: 10 * 60_000,
        tick: usage.forgetOnce,
      },
    ],
    // Counts are worth no failed shutdown.
    close: () => usage.writeOnce().catch((error) => log.warn("usage.not_written", { error })),
  } satisfies PartShape;
}

/** What leads to what in an environment, and how much happens in it. */
export function openFlowPart({ store, clock, log }: Host) {
  const flow = openFlow({ store, clock });
  return {
    flow,
    operations: flowOperations(flow),
    loops: [
      {
        name: "flow.write",
        about:
          "Writes what happened at this node since its last tick, as counts by the hour and by the minute.",
        everyMs: flowWriteMs,
        tick: flow.writeOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "flow.forget",
        about: "Deletes the counts of flows and rates that are too old.",
        everyMs: 10 * 60_000,
        tick: flow.forgetOnce,
      },
    ],
    // Counts are worth no failed shutdown.
    close: () => flow.writeOnce().catch((error) => log.warn("flow.not_written", { error })),
  } satisfies PartShape;
}

export interface DebugPart extends Part, Pick<CapturedRequests, "observe" | "clear"> {}

/** Requests as they came, to find a client's mistake in them. */
export function openDebugPart({ config, bus, clock, log, nodeId }: Host): DebugPart {
  const { redactedFields } = auditSettingsOf(config);
  const captured = openCapturedRequests({
    ...{ bus, clock, log, nodeId },
    redact: (input, hidden) => redactPayload(input, redactedFields, hidden),
    statusOf: (outcome) => (outcome === "ok" ? 200 : statusOfKind(outcome as FaultKind)),
  });
  return { operations: requestsOperations(captured), ...captured };
}

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
