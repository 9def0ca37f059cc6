import { subjectOf } from "../../../gate/subject.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import { type Basics, isOfRow } from "../../../store/store.ts";
import { auditCallersKeptMax, auditDenialsMax, auditGatherMs } from "./limits.ts";
import { redactPayload } from "./redaction.ts";
import type { AuditEntry, AuditedCall } from "./rules.ts";
import * as rules from "./rules.ts";
import { type Batch, Batches, type Spool } from "./spool.ts";

/** What is recorded. */
export interface AuditPolicy {
  /** Reads that were allowed, too. */
  successfulReads: boolean;
  /** Actions whose allowed calls leave no row; denied ones always do. */
  excludedActions: ReadonlySet<string>;
  /** What changes keys of the key-value store, with its input. */
  kvCapture: boolean;
  /** Canonical names of payload fields that are removed, besides every secret. */
  redactedFields: ReadonlySet<string>;
}

const isDenied = ({ outcome }: AuditedCall): boolean => outcome === "permission_denied";

/**
 * Whether the call leaves a row. Denials always do, and so do calls by which the platform's users impersonate
 * an org: no setting of the installation may hide these from the tenant. Data that flows all the time does
 * not: rows with the states of projections would bury what people changed. A call without an org has no chain
 * to be written to.
 */
function isRecorded(policy: AuditPolicy, call: AuditedCall): boolean {
  const { operation, caller } = call;
  if (caller.orgId === "") return false;
  if (isDenied(call) || caller.impersonates === true) return true;
  if (operation.special?.isAudited) return true;
  if (operation.isRoutine && !(policy.kvCapture && rules.isOfKeys(operation))) return false;
  if (policy.excludedActions.has(operation.action ?? "")) return false;
  return operation.reads !== true || policy.successfulReads;
}

/** The row of a call. Only a change that was made keeps its payload, without secrets. */
function entryOf(
  policy: AuditPolicy,
  call: AuditedCall,
  { id, at }: { id: string; at: Instant },
): AuditEntry {
  const { operation, caller, outcome, input } = call;
  const denied = isDenied(call);
  const change = rules.isChange(operation, policy.kvCapture);
  const subject = subjectOf(operation);
  const about = input === undefined ? [] : subject.idsOf(input);
  const { payload, removed } =
    change && outcome === "ok"
      ? redactPayload(input, policy.redactedFields, operation.hides)
      : { payload: undefined, removed: [] };
  return {
    id,
    orgId: caller.orgId,
    at,
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

const windowMs = 60_000;

/** Records the first denials of each kind in a minute: a caller in a loop would otherwise fill the audit. */
class DenialCap {
  readonly #clock: Pick<Clock, "elapsed">;
  readonly #kinds = new Map<string, { until: number; count: number }>();

  constructor(clock: Pick<Clock, "elapsed">) {
    this.#clock = clock;
  }

  /**
   * How many denials like this one were left out in the minute before; undefined when this one is left out
   * too.
   */
  leftOutBefore(entry: AuditEntry): number | undefined {
    const kind = `${entry.orgId}\n${entry.callerId}\n${entry.operation}\n${entry.rule}`;
    const now = this.#clock.elapsed();
    const known = this.#kinds.get(kind);
    if (known && known.until > now) {
      known.count++;
      return known.count > auditDenialsMax ? undefined : 0;
    }
    this.#kinds.delete(kind);
    if (this.#kinds.size >= auditCallersKeptMax) this.#kinds.delete(this.#kinds.keys().next().value!);
    this.#kinds.set(kind, { until: now + windowMs, count: 1 });
    return known ? Math.max(0, known.count - auditDenialsMax) : 0;
  }
}

export interface RecorderDeps extends Basics<"clock" | "ids" | "log"> {
  policy: AuditPolicy;
  spool: Spool;
  append: (entries: readonly AuditEntry[], options: { again: boolean }) => Promise<void>;
  platformOrgId: string;
  /** Asks for a flush within this time. */
  flushIn: (ms: number) => void;
}

/** A spool file that was not touched for this long belongs to a process that died. */
const leftAfterMs = 30_000;
/** A batch that is refused this often is tried row by row. */
const triesMax = 3;

export function openRecorder(deps: RecorderDeps) {
  const { clock, ids, log, policy, spool, append, platformOrgId, flushIn } = deps;
  const batches = new Batches({ spool, log });
  const denials = new DenialCap(clock);
  let failures = 0;
  let lost = 0;
  let lastFailed = false;
  let adoptedAt = Number.NEGATIVE_INFINITY;
  let flushing: Promise<void> | undefined;

  function push(entry: AuditEntry): void {
    if (batches.add(entry)) flushIn(auditGatherMs);
    else {
      lost++;
      failures++;
    }
  }

  function record(call: AuditedCall): void {
    if (!isRecorded(policy, call)) return;
    const entry = entryOf(policy, call, { id: ids.next("aud"), at: clock.now() });
    if (isDenied(call)) {
      const before = denials.leftOutBefore(entry);
      if (before === undefined) return;
      if (before > 0) entry.payload = JSON.stringify({ left_out_before: before });
    }
    push(entry);
    if (call.caller.impersonates)
      push({ ...entry, id: ids.next("aud"), orgId: platformOrgId, eventType: "platform.impersonated" });
  }

  async function write(batch: Batch): Promise<void> {
    const entries = batches.entriesOf(batch);
    const again = batch.tries > 0 || batch.entries === undefined;
    batch.tries++;
    try {
      await append(entries, { again });
    } catch (error) {
      // Rows wait for the end of what none of them is to blame for.
      if (!isOfRow(error) || batch.tries < triesMax) throw error;
      for (const entry of entries)
        await append([entry], { again: true }).catch((cause: unknown) => {
          if (!isOfRow(cause)) throw cause;
          lost++;
          failures++;
          log.error("audit.row_lost", { id: entry.id, operation: entry.operation, error: cause });
        });
    }
  }

  async function flush(): Promise<void> {
    const now = clock.elapsed();
    if (now - adoptedAt >= leftAfterMs) {
      adoptedAt = now;
      batches.adoptLeftBefore(clock.now() - leftAfterMs);
    }
    batches.close();
    try {
      for (let batch = batches.first(); batch; batch = batches.first()) {
        await write(batch);
        batches.dropFirst();
      }
      lastFailed = false;
    } catch (error) {
      failures++;
      lastFailed = true;
      throw error;
    }
  }

  return {
    /** Costs the call a line in the spool file; never throws. */
    observe(call: AuditedCall) {
      try {
        record(call);
      } catch (error) {
        failures++;
        lost++;
        log.error("audit.row_lost", { operation: call.operation.name, error });
      }
    },
    /** Writes what waits; the tick of loop `audit.flush`. */
    async flushOnce() {
      // Flushes never overlap: rows reach the chain in the order of the calls.
      while (flushing) await flushing.catch(() => {});
      flushing = flush().finally(() => {
        flushing = undefined;
      });
      await flushing;
    },
    delivery: () => ({
      healthy: !lastFailed && !batches.spoolFails,
      failures,
      lost,
      waiting: batches.waiting,
    }),
  };
}
