import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { Fault, invalid, wholeWithin } from "../../../kit/fault.ts";
import {
  quotaAgainMs,
  quotaAgainSeconds,
  quotaConcurrentRunsMax,
  quotaRunsPerMinuteMax,
  quotaStoredBytesMax,
} from "./limits.ts";

/** What an environment may use; each may be unlimited. */
export const quotaNames = ["runs_per_minute", "stored_bytes", "concurrent_runs"] as const;
export type QuotaName = (typeof quotaNames)[number];

export type QuotaLimits = { readonly [Name in QuotaName]?: number };
/** Null takes a limit back; what is left out stays. */
export type QuotaChange = { readonly [Name in QuotaName]?: number | null | undefined };

/** The ledger of an environment: the lower of both limits, and what is used. */
export interface Ledger {
  environment_id: string;
  runs_per_minute: number | null;
  stored_bytes: number | null;
  concurrent_runs: number | null;
  /** The minute that `minute_runs` began in. */
  minute: Instant;
  minute_runs: number;
  /** At least the runs that are not over. */
  active_runs: number;
  bytes: number;
  /** 0 of a ledger from before 0.41 whose limits were not set since: it counts events alone. */
  counts_all: number;
}

/** What is asked of a ledger at once. */
export interface Demand {
  runs: number;
  bytes: number;
  /** Bytes of delayed events whose time has come: they count, and nothing is refused for them. */
  accepted: number;
}

/** Mark raised, with the environment's id, when a quota has no room for what a flush asks of it. */
export const quotaSpent = "quota:";

const minuteMs = 60_000;
export const minuteOf = (at: Instant): Instant => at - (at % minuteMs);

const most: Record<QuotaName, number> = {
  runs_per_minute: quotaRunsPerMinuteMax,
  stored_bytes: quotaStoredBytesMax,
  concurrent_runs: quotaConcurrentRunsMax,
};

/** The limits after a change. An environment's own may not be higher than those of the platform. */
export function changedLimits(
  before: QuotaLimits,
  change: QuotaChange,
  platform: QuotaLimits | undefined,
): QuotaLimits {
  const after: Partial<Record<QuotaName, number>> = { ...before };
  for (const name of quotaNames) {
    const limit = change[name];
    if (limit === undefined) continue;
    if (limit === null) {
      delete after[name];
      continue;
    }
    wholeWithin(name, limit, 0, most[name]);
    const highest = platform?.[name];
    if (highest !== undefined && limit > highest)
      throw invalid(name, `must be at most ${highest}, the limit of the platform`);
    after[name] = limit;
  }
  return after;
}

export function lowerOf(platform: QuotaLimits, own: QuotaLimits): Record<QuotaName, number | null> {
  const lower = (name: QuotaName) => {
    const both = [platform[name], own[name]].filter((limit) => limit !== undefined);
    return both.length === 0 ? null : Math.min(...both);
  };
  return {
    runs_per_minute: lower("runs_per_minute"),
    stored_bytes: lower("stored_bytes"),
    concurrent_runs: lower("concurrent_runs"),
  };
}

/** What of each is used. A minute that is over counts nothing. */
export const usedOf = (ledger: Ledger, now: Instant): Record<QuotaName, number> => ({
  runs_per_minute: ledger.minute >= minuteOf(now) ? ledger.minute_runs : 0,
  stored_bytes: ledger.bytes,
  concurrent_runs: ledger.active_runs,
});

/** The first quota that the demand goes beyond; undefined when there is room for all of it. */
export function overrun(
  ledger: Ledger,
  { runs, bytes }: Omit<Demand, "accepted">,
  now: Instant,
): QuotaName | undefined {
  const used = usedOf(ledger, now);
  const asked = { runs_per_minute: runs, stored_bytes: bytes, concurrent_runs: runs };
  return quotaNames.find((name) => {
    const limit = ledger[name];
    return limit !== null && asked[name] > 0 && used[name] + asked[name] > limit;
  });
}

/** The ledger with the demand in it. */
export function charged(ledger: Ledger, { runs, bytes, accepted }: Demand, now: Instant): Ledger {
  return {
    ...ledger,
    minute: Math.max(ledger.minute, minuteOf(now)),
    minute_runs: usedOf(ledger, now).runs_per_minute + runs,
    active_runs: ledger.active_runs + runs,
    bytes: ledger.bytes + bytes + accepted,
  };
}

/** How many further runs there is room for. */
export function roomFor(ledger: Ledger, now: Instant): number {
  const used = usedOf(ledger, now);
  const room = (["runs_per_minute", "concurrent_runs"] as const).map(
    (name) => (ledger[name] ?? Number.POSITIVE_INFINITY) - used[name],
  );
  return Math.max(0, Math.min(...room));
}

/** When a start that found no room is worth another try. */
export const againAt = (ledger: Ledger, now: Instant): Instant =>
  overrun({ ...ledger, concurrent_runs: null }, { runs: 1, bytes: 0 }, now) === undefined
    ? now + quotaAgainMs
    : Math.max(ledger.minute, minuteOf(now)) + minuteMs;

const again: Record<Exclude<QuotaName, "runs_per_minute">, string> = {
  stored_bytes: "once events expire",
  concurrent_runs: "once a run ends",
};

export function quotaFault(name: QuotaName, ledger: Ledger, now: Instant): Fault {
  const used = usedOf(ledger, now)[name];
  const at = Math.max(ledger.minute, minuteOf(now)) + minuteMs;
  const [when, seconds] =
    name === "runs_per_minute"
      ? [`at ${rfc3339(at)}`, Math.ceil((at - now) / 1_000)]
      : [again[name], quotaAgainSeconds];
  return new Fault(
    "resource_exhausted",
    `quota ${name} of the environment is used up: limit ${ledger[name]}, used ${used}, again ${when}`,
    { code: "QUOTA_EXCEEDED", headers: { "Retry-After": String(seconds) } },
  );
}
