import type { ConditionFacts } from "../../../gate/condition.ts";
import { boundedPageOf } from "../../../kit/bounded-look.ts";
import type { Instant } from "../../../kit/clock.ts";
import { invalid } from "../../../kit/fault.ts";
import { pageSize, readCursor, writeCursor } from "../../../kit/page.ts";
import type { Basics, LeaderWrite } from "../../../store/store.ts";
import { openChain, type ScopeOf } from "./chain.ts";
import { auditVerifyRowsMax } from "./limits.ts";
import { type AuditPolicy, openRecorder } from "./recorder.ts";
import { canonicalField } from "./redaction.ts";
import * as rows from "./rows.ts";
import { type AuditRow, trailOperation } from "./rules.ts";
import { openSpool } from "./spool.ts";
import type { AuditKeys, NotedRow } from "./verify.ts";

export type { NotedRow as Noted, Verified } from "./verify.ts";

export interface AuditListQuery extends Omit<rows.AuditQuery, "before" | "limit"> {
  limit?: number;
  cursor?: string;
}

export interface AuditPage {
  events: AuditRow[];
  nextCursor: string | undefined;
  /** At most `countCap`, among as many rows. */
  totalCount: number;
  /** There may be more than were counted. */
  isTotalCut: boolean;
  /** How many rows were looked at, when that ended the page; else 0. */
  scanned: number;
  retentionDays: number;
}

export interface AuditSettings extends AuditPolicy {
  retentionDays: number;
}

/** The audit's settings, by their names. */
export interface WrittenSettings {
  auditReads: boolean;
  /** With commas between, or `none`. */
  auditExcludedActions: string;
  auditKv: boolean;
  auditRedactFields: string | undefined;
  auditRetentionDays: number;
}

export const auditSettingsOf = (written: WrittenSettings): AuditSettings => ({
  successfulReads: written.auditReads,
  excludedActions: new Set(
    written.auditExcludedActions === "none" ? [] : written.auditExcludedActions.split(","),
  ),
  kvCapture: written.auditKv,
  redactedFields: new Set((written.auditRedactFields?.split(",") ?? []).map(canonicalField)),
  retentionDays: written.auditRetentionDays,
});

/** A past call, for the dry run of a policy. */
export interface PastCall {
  facts: ConditionFacts;
  allowed: boolean;
}

export type AuthAudit = ReturnType<typeof openAuthAudit>;

export interface AuthAuditDeps extends Basics<"store" | "clock" | "ids" | "log"> {
  keys: AuditKeys;
  settings: AuditSettings;
  /** The folder for rows that are not in the store yet. */
  spoolFolder: string;
  scopeOf: (environmentId: string) => Promise<{ projectId: string | null; name: string } | undefined>;
  platformOrgId: string;
  flushIn: (ms: number) => void;
  /**
   * Called after the commit of rows of the org. Rows of reads of the trail alone are not told: who is told
   * reads it again, which may leave a row, and so on without end.
   */
  onWritten: (orgId: string) => void;
}

const dayMs = 24 * 60 * 60 * 1000;
const orgsSlice = 100;
/** There is more to cut than one tick may. */
const againMs = 200;

const fromStored = (row: rows.StoredRow): AuditRow => ({ ...row, roles: JSON.parse(row.roles) as string[] });

export function openAuthAudit(deps: AuthAuditDeps) {
  const { store, clock, ids, log, keys, settings, scopeOf } = deps;
  const spool = openSpool({
    ...{ folder: deps.spoolFolder, stamp: ids.next("node"), secrets: keys },
    onLost: (file) => log.error("audit.row_lost", { file }),
  });
  const chain = openChain({
    store,
    keys,
    scopeOf: scopeOf satisfies ScopeOf,
    newId: () => ids.next("aud"),
    now: clock.now,
    onMismatch: (orgId, reason) => log.error("audit.chain_changed", { orgId, reason }),
  });
  const { platformOrgId, flushIn } = deps;
  const append: typeof chain.append = async (entries, options) => {
    await chain.append(entries, options);
    const shown = entries.filter(({ operation }) => operation !== trailOperation);
    for (const orgId of new Set(shown.map((entry) => entry.orgId))) deps.onWritten(orgId);
  };
  const recorder = openRecorder({ clock, ids, log, policy: settings, spool, append, platformOrgId, flushIn });

  return {
    /** Called for every call; its row is written later. Never throws. */
    observe: recorder.observe,
    settings,
    delivery: recorder.delivery,
    /** The tick of loop `audit.flush`. */
    flushOnce: recorder.flushOnce,

    /** Newest first, of one org. */
    async list({ cursor, limit, ...query }: AuditListQuery): Promise<AuditPage> {
      const place = cursor ? readCursor("cursor", cursor) : undefined;
      const before = place && { at: place.at, sequence: Number(place.id) };
      if (before && !Number.isSafeInteger(before.sequence))
        throw invalid("cursor", "is not a cursor of this list");
      const size = pageSize(limit);
      const [found, { count, isCut }] = await Promise.all([
        rows.listRows(store, { ...query, ...(before && { before }), limit: size + 1 }),
        rows.countRows(store, { ...query, limit: 0 }),
      ]);
      const { items, ...page } = boundedPageOf(found, size, ({ at, sequence }) =>
        writeCursor({ at, id: String(sequence) }),
      );
      const counted = { totalCount: count, isTotalCut: isCut };
      return { events: items.map(fromStored), ...page, ...counted, retentionDays: settings.retentionDays };
    },

    /** The newest of the org's calls, from an instant on where there is one; newest first. */
    async pastDecisions(
      orgId: string,
      { limit, since }: { limit: number; since?: Instant },
    ): Promise<PastCall[]> {
      const { found } = await rows.listRows(store, {
        ...{ orgId, limit },
        ...(since !== undefined && { from: since }),
      });
      const names = new Map<string, string>();
      for (const { environmentId } of found)
        if (environmentId !== "" && !names.has(environmentId))
          names.set(environmentId, (await scopeOf(environmentId))?.name ?? "*");
      return found.map((row) => ({ allowed: row.allowed, facts: factsOf(row, names) }));
    },

    /** Follows the org's chain of hashes; `from` is the sequence of the first row to check. */
    verify: (orgId: string, from?: number, noted?: NotedRow) =>
      chain.verify(orgId, from, auditVerifyRowsMax, noted),

    /** The tick of duty loop `audit.forget`: one slice of every org whose oldest rows are past their time. */
    async forgetOnce(write: LeaderWrite): Promise<{ againInMs: number } | void> {
      if (settings.retentionDays === 0) return undefined;
      const before: Instant = clock.now() - settings.retentionDays * dayMs;
      let cut = 0;
      for (let after = ""; ; ) {
        const orgs = await rows.orgsAfter(store, after, orgsSlice);
        for (const orgId of orgs) cut += await write((session) => chain.cut(session, orgId, before));
        if (orgs.length < orgsSlice) break;
        after = orgs.at(-1)!;
      }
      return cut > 0 ? { againInMs: againMs } : undefined;
    },

    async close() {
      await recorder.flushOnce().catch((error: unknown) => log.warn("audit.left_in_spool", { error }));
      spool.close();
    },
  };
}

function factsOf(row: rows.StoredRow, names: ReadonlyMap<string, string>): ConditionFacts {
  // irn:svc:{org}:{project}:{type}:{environment}:{resource}
  const parts = row.resource.split(":").map((part) => part.replaceAll("%3A", ":").replaceAll("%25", "%"));
  return {
    subject: {
      id: row.callerId,
      kind: row.callerKind,
      orgId: row.orgId,
      roles: JSON.parse(row.roles) as string[],
    },
    action: row.action,
    operation: row.operation,
    reads: row.reads,
    resource: {
      orgId: row.orgId,
      projectId: parts[3] ?? "*",
      type: parts[4] ?? "*",
      environmentId: row.environmentId || "*",
      environmentName: names.get(row.environmentId) ?? "*",
      id: parts[6] ?? "*",
    },
    at: row.at,
  };
}
