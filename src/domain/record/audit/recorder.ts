import { subjectOf } from "../../../access/subject.ts";
import type { Clock } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import {
  auditCallersKeptMax,
  auditDenialsMax,
  auditFlushRowsMax,
  auditGatherMs,
  auditWaitingMax,
} from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { StoreError } from "../../../store/store.ts";
import { redactPayload } from "./redaction.ts";
import type { AuditEntry, AuditedCall } from "./rules.ts";
import * as rules from "./rules.ts";
import type { Spool } from "./spool.ts";

/** What is recorded. */
export interface AuditPolicy {
  /** Reads that were allowed, too. */
  successfulReads: boolean;
  /** Actions whose allowed calls leave no row; denied ones always do. */
  excludedActions: ReadonlySet<string>;
  kvCapture: boolean;
  /** Canonical names of payload fields that are removed, besides every secret. */
  redactedFields: ReadonlySet<string>;
}

export interface DeliveryHealth {
  healthy: boolean;
  /** Flushes that failed, and rows that were lost. */
  failures: number;
  /** Rows that stand nowhere: neither store nor spool took them. */
  lost: number;
  waiting: number;
}

export interface Recorder {
  /** Costs the call a line in the spool file; never throws. */
  observe(call: AuditedCall): void;
  /** Writes what waits; the tick of loop `audit.flush`. */
  flushOnce(): Promise<void>;
  delivery(): DeliveryHealth;
}

export interface RecorderDeps {
  clock: Clock;
  ids: Ids;
  log: Log;
  policy: AuditPolicy;
  spool: Spool;
  append: (entries: readonly AuditEntry[], options: { again: boolean }) => Promise<void>;
  platformOrgId: string;
  /** Asks for a flush by then. */
  flushIn: (ms: number) => void;
}

/** What goes to the store in one transaction; `entries` is undefined when only the file has them. */
interface Batch {
  files: Set<string>;
  entries: AuditEntry[] | undefined;
  count: number;
  tries: number;
}

/** A process that writes to its spool does so at once; what lies untouched for so long was left. */
const leftAfterMs = 30_000;
/** A batch that fails so often, while others could be written, holds a row that no store takes. */
const triesMax = 3;
const windowMs = 60_000;

export function openRecorder(deps: RecorderDeps): Recorder {
  const { clock, ids, log, policy, spool, append, platformOrgId, flushIn } = deps;
  let gathering: Batch = newBatch();
  const waiting: Batch[] = [];
  let inMemory = 0;
  let failures = 0;
  let lost = 0;
  let lastFailed = false;
  let spoolFails = false;
  let adoptedAt = Number.NEGATIVE_INFINITY;
  let flushing: Promise<void> | undefined;
  const denials = new Map<string, { until: number; count: number }>();

  /** How many denials like this one were left out before it; undefined when it is left out itself. */
  function leftOut(entry: AuditEntry): number | undefined {
    const key = `${entry.orgId}\n${entry.callerId}\n${entry.operation}\n${entry.rule}`;
    const now = clock.elapsed();
    const known = denials.get(key);
    if (known && known.until > now) {
      known.count++;
      return known.count > auditDenialsMax ? undefined : 0;
    }
    denials.delete(key);
    if (denials.size >= auditCallersKeptMax) denials.delete(denials.keys().next().value!);
    denials.set(key, { until: now + windowMs, count: 1 });
    return known ? Math.max(0, known.count - auditDenialsMax) : 0;
  }

  function push(entry: AuditEntry): void {
    const isFull = inMemory >= auditWaitingMax;
    // A batch is in memory as a whole or not at all.
    if (isFull && gathering.entries !== undefined) closeBatch();
    if (gathering.count === 0) gathering.entries = isFull ? undefined : [];
    let file: string | undefined;
    try {
      file = spool.append(entry);
      spoolFails = false;
    } catch (error) {
      if (!spoolFails) log.error("audit.spool_failed", { error });
      spoolFails = true;
    }
    if (file !== undefined) gathering.files.add(file);
    if (gathering.entries) {
      gathering.entries.push(entry);
      inMemory++;
    } else if (file === undefined) {
      lost++;
      failures++;
      return;
    }
    gathering.count++;
    if (gathering.count >= auditFlushRowsMax) closeBatch();
    flushIn(auditGatherMs);
  }

  function closeBatch(): void {
    if (gathering.count === 0) return;
    spool.cut();
    waiting.push(gathering);
    gathering = newBatch();
  }

  function entryOf(call: AuditedCall, change: boolean): AuditEntry {
    const { operation, caller, outcome, input } = call;
    const denied = outcome === "permission_denied";
    const subject = subjectOf(operation);
    const about = input === undefined ? [] : subject.idsOf(input);
    const keepsPayload = change && outcome === "ok";
    const { payload, removed } = keepsPayload
      ? redactPayload(input, policy.redactedFields)
      : { payload: undefined, removed: [] };
    return {
      id: ids.next("aud"),
      orgId: caller.orgId,
      at: clock.now(),
      eventType: rules.eventTypeOf(call, denied, change),
      operation: operation.name,
      action: operation.action ?? "",
      reads: operation.reads === true,
      environmentId: call.environmentId,
      resourceType: subject.type,
      resourceId: rules.plain(about.length === 1 ? about[0]! : "*"),
      allowed: !denied,
      rule: denied ? (call.refusedBy ?? "operation") : "",
      outcome,
      callerKind: caller.kind,
      callerId: rules.plain(caller.id),
      roles: caller.roles,
      impersonatedOrgId: caller.impersonates ? caller.orgId : "",
      requestId: rules.plain(call.requestId),
      payload: payload ?? null,
      removed: removed.join(","),
    };
  }

  function record(call: AuditedCall): void {
    const { operation, caller, outcome } = call;
    if (caller.orgId === "") return;
    const denied = outcome === "permission_denied";
    // What the platform's people do in a tenant's org is the tenant's to know, however often it is done.
    const isAlwaysRecorded = denied || caller.impersonates === true;
    if (!isAlwaysRecorded && policy.excludedActions.has(operation.action ?? "")) return;
    // What the platform's people look at in a tenant's org is recorded whatever the setting says.
    if (!denied && operation.reads === true && !policy.successfulReads && caller.impersonates !== true)
      return;
    const entry = entryOf(call, rules.isChange(operation, policy.kvCapture));
    if (denied) {
      const before = leftOut(entry);
      if (before === undefined) return;
      if (before > 0) entry.payload = JSON.stringify({ left_out_before: before });
    }
    push(entry);
    if (caller.impersonates)
      push({ ...entry, id: ids.next("aud"), orgId: platformOrgId, eventType: "platform.impersonated" });
  }

  async function write(batch: Batch): Promise<void> {
    const entries = batch.entries ?? [...batch.files].flatMap(spool.read);
    const again = batch.tries > 0 || batch.entries === undefined;
    batch.tries++;
    try {
      await append(entries, { again });
    } catch (error) {
      const isAway = error instanceof StoreError && error.trouble !== "marked";
      if (isAway || batch.tries < triesMax) throw error;
      for (const entry of entries)
        await append([entry], { again: true }).catch((cause: unknown) => {
          lost++;
          failures++;
          log.error("audit.row_lost", { id: entry.id, operation: entry.operation, error: cause });
        });
    }
    for (const file of batch.files) spool.forget(file);
    inMemory -= batch.entries?.length ?? 0;
  }

  async function flush(): Promise<void> {
    const now = clock.elapsed();
    if (now - adoptedAt >= leftAfterMs) {
      adoptedAt = now;
      for (const file of spool.adopt(clock.now() - leftAfterMs))
        waiting.push({ files: new Set([file]), entries: undefined, count: 1, tries: 0 });
    }
    closeBatch();
    try {
      for (let batch = waiting[0]; batch; batch = waiting[0]) {
        await write(batch);
        waiting.shift();
      }
      lastFailed = false;
    } catch (error) {
      failures++;
      lastFailed = true;
      throw error;
    }
  }

  return {
    observe(call) {
      try {
        record(call);
      } catch (error) {
        failures++;
        lost++;
        log.error("audit.row_lost", { operation: call.operation.name, error });
      }
    },
    async flushOnce() {
      // One after the other, so that rows come in their order.
      while (flushing) await flushing.catch(() => {});
      flushing = flush().finally(() => {
        flushing = undefined;
      });
      await flushing;
    },
    delivery: () => ({
      healthy: !lastFailed && !spoolFails,
      failures,
      lost,
      waiting: waiting.reduce((sum, batch) => sum + batch.count, gathering.count),
    }),
  };
}

const newBatch = (): Batch => ({ files: new Set(), entries: [], count: 0, tries: 0 });
