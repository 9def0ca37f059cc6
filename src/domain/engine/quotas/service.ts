import type { Caller } from "../../../kit/caller.ts";
import { operates } from "../../../kit/caller.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import type { Sql } from "../../../kit/sql.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Session, Store } from "../../../store/store.ts";
import { ledgerKeptMs, ledgersKeptMax, quotaConcurrentRunsMax } from "./limits.ts";
import * as rows from "./rows.ts";
import {
  againAt,
  changedLimits,
  charged,
  type Ledger,
  lowerOf,
  overrun,
  type QuotaChange,
  type QuotaLimits,
  type QuotaName,
  quotaFault,
  quotaNames,
  roomFor,
  usedOf,
} from "./rules.ts";

/** One quota, as it is shown. */
export interface QuotaUse {
  quota: QuotaName;
  limit: number;
  used: number;
  /** The limits that the lower one is of. */
  platform: number | undefined;
  own: number | undefined;
}

/** Room for runs that no caller waits for, shared out in the order that it is asked in. */
export interface Room {
  /** How many of these runs may begin. */
  share(environmentId: string, runs: number): number;
  /** When those without room are worth another try. */
  againAt(environmentId: string): Instant;
}

/** What environments may use. Every use stands in one ledger, the row of its environment. */
export type Quotas = ReturnType<typeof openQuotas>;

/**
 * `growth` answers by how much what is stored would truly grow, where `bytes` are too many: a repeat adds
 * nothing, a value takes the place of another.
 */
export type RequireRoom = (
  environmentId: string,
  bytes: number,
  growth: () => Promise<number>,
) => Promise<void>;

/**
 * The payloads of some events go, but for so many bytes of each: call before they do, in the same
 * transaction. `which` are conditions on `events`.
 */
export type ForgetBytes = (
  session: Session,
  environmentId: string,
  which: Sql,
  left?: number,
) => Promise<void>;

export interface QuotasDeps {
  store: Store;
  clock: Pick<Clock, "now" | "elapsed">;
  /** Tells every emit flush of the environment that its cached definitions are old; holds its head. */
  raiseDefinitions: (session: Session, environmentId: string) => Promise<void>;
}

function openRoom({ store, clock }: Pick<QuotasDeps, "store" | "clock">) {
  const ledgers = ttlCache({
    ...{ clock, keptMs: ledgerKeptMs, entriesMax: ledgersKeptMax },
    read: (environmentId: string) => rows.readQuotas(store, environmentId),
  });
  const requireRoom: RequireRoom = async (environmentId, bytes, growth) => {
    const ledger = await ledgers.get(environmentId);
    if (!ledger?.counts_all) return;
    const now = clock.now();
    if (overrun(ledger, { runs: 0, bytes }, now)) {
      const name = overrun(ledger, { runs: 0, bytes: await growth() }, now);
      if (name) throw quotaFault(name, ledger, now);
    } else ledger.bytes += bytes;
  };
  return { requireRoom, forget: ledgers.forget };
}

/**
 * Before the first count. From here on who writes notes it, or holds the ledger; who looked for one before is
 * waited for, because it noted nothing.
 */
async function openLedger(
  { store, clock, raiseDefinitions }: QuotasDeps,
  environmentId: string,
  change: QuotaChange,
): Promise<void> {
  if (Object.keys(changedLimits({}, change, undefined)).length === 0) return;
  if ((await rows.readQuotas(store, environmentId))?.counts_all) return;
  await store.write(async (session) => {
    await raiseDefinitions(session, environmentId);
    await rows.insertLedger(session, environmentId, clock.now());
  });
  await store.write((session) => rows.awaitWriters(session, environmentId));
}

async function usesOf({ store, clock }: QuotasDeps, environmentId: string): Promise<QuotaUse[]> {
  const row = await rows.readQuotas(store, environmentId);
  if (!row) return [];
  const active =
    row.concurrent_runs === null ? 0 : await rows.countActive(store, environmentId, quotaConcurrentRunsMax);
  const used = usedOf({ ...row, active_runs: active }, clock.now());
  const platform = JSON.parse(row.platform) as QuotaLimits;
  const own = JSON.parse(row.own) as QuotaLimits;
  return quotaNames.flatMap((quota) => {
    const limit = row[quota];
    return limit === null
      ? []
      : { quota, limit, used: used[quota], platform: platform[quota], own: own[quota] };
  });
}

export function openQuotas(deps: QuotasDeps) {
  const { store, clock, raiseDefinitions } = deps;
  const { requireRoom, forget } = openRoom({ store, clock });
  /** Runs that end are not noted: they are counted when the ledger says that there are too many. */
  async function recount(session: Session, environmentId: string): Promise<rows.QuotaRow | undefined> {
    const row = await rows.holdQuotas(session, environmentId);
    if (!row || row.concurrent_runs === null) return row;
    // A statement behind the lock: it sees every run that was charged for.
    const active = await rows.countActive(session, environmentId, quotaConcurrentRunsMax + 1);
    const ledger = { ...row, active_runs: active };
    if (active !== row.active_runs) await rows.putLedger(session, ledger);
    return ledger;
  }

  /** Answers how many of the runs there was room for; undefined when there are no quotas by now. */
  const takeOf = (environmentId: string, runs: number) =>
    store.write(async (session) => {
      const now = clock.now();
      const row = await recount(session, environmentId);
      if (!row) return undefined;
      const taken = Math.min(runs, roomFor(row, now));
      if (taken > 0) await rows.putLedger(session, charged(row, { runs: taken, bytes: 0, accepted: 0 }, now));
      return { left: taken, againAt: againAt(row, now) };
    });

  async function requireShown(caller: Caller, environmentId: string): Promise<void> {
    const found = await rows.orgOf(store, environmentId);
    if (!found || !(operates(caller) || found.org_id === caller.orgId))
      throw missing("environment", environmentId);
  }

  return {
    /** Those that have a limit. */
    usesOf: (environmentId: string) => usesOf(deps, environmentId),

    /** The same for a caller. Another org's environment looks like none. */
    async show(caller: Caller, environmentId: string): Promise<QuotaUse[]> {
      await requireShown(caller, environmentId);
      return usesOf(deps, environmentId);
    },

    /** The platform sets its limits, others those of the environment's own, which may only be lower. */
    async set(caller: Caller, environmentId: string, change: QuotaChange): Promise<QuotaUse[]> {
      await requireShown(caller, environmentId);
      await openLedger(deps, environmentId, change);
      await store.write(async (session) => {
        // Holds the head: what is counted below is all there is, and later emits know of the quotas.
        await raiseDefinitions(session, environmentId);
        const row = await rows.holdQuotas(session, environmentId);
        const before = {
          platform: JSON.parse(row?.platform ?? "{}") as QuotaLimits,
          own: JSON.parse(row?.own ?? "{}") as QuotaLimits,
        };
        const limits = operates(caller)
          ? { ...before, platform: changedLimits(before.platform, change, undefined) }
          : { ...before, own: changedLimits(before.own, change, before.platform) };
        if (Object.keys(limits.platform).length + Object.keys(limits.own).length === 0) {
          await rows.deleteQuotas(session, environmentId);
          return;
        }
        // Once, under the ledger's lock: a writer has noted what is not seen here, or notes it afterwards.
        const counted = row?.counts_all ? row : undefined;
        const most = quotaConcurrentRunsMax + 1;
        const first = {
          activeRuns: counted?.active_runs ?? (await rows.countActive(session, environmentId, most)),
          bytes: counted?.bytes ?? (await rows.countBytes(session, environmentId)),
          now: clock.now(),
        };
        const lower = lowerOf(limits.platform, limits.own);
        await rows.putLimits(session, environmentId, { ...limits, lower }, first);
      });
      forget(environmentId);
      return usesOf(deps, environmentId);
    },

    /** Throws where there is no room for bytes of what is no event, as this node knows it for some time. */
    requireRoom,
    /** The ledger after its runs were counted; undefined without quotas. */
    recounted: (environmentId: string): Promise<Ledger | undefined> =>
      store.write((session) => recount(session, environmentId)),
    /** A run that was over goes on: it counts, and is not refused. */
    async noteRevived(session: Session, environmentId: string) {
      await rows.addActive(session, environmentId);
    },

    async forgetBytes(session: Session, environmentId: string, which: Sql, left = 0) {
      await rows.forgetBytes(session, environmentId, { which, left });
    },

    /**
     * Takes room before runs begin; an environment for each of them. A node that dies afterwards leaves them
     * counted for their minute.
     */
    async take(environmentIds: readonly string[]): Promise<Room> {
      const wanted = Map.groupBy(environmentIds, (id) => id);
      const limited = wanted.size === 0 ? [] : await rows.limitedAmong(store, [...wanted.keys()]);
      const taken = new Map<string, { left: number; againAt: Instant }>();
      for (const { environment_id: id } of limited) {
        const some = await takeOf(id, wanted.get(id)!.length);
        if (some) taken.set(id, some);
      }
      return {
        share(environmentId, runs) {
          const own = taken.get(environmentId);
          if (!own) return runs;
          const some = Math.min(own.left, runs);
          own.left -= some;
          return some;
        },
        againAt: (environmentId) => taken.get(environmentId)?.againAt ?? 0,
      };
    },
  };
}
