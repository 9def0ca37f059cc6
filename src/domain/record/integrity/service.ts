import type { Clock, Instant } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import { integrityEnvironmentsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import { cachedQuery } from "../../../kit/ttl-cache.ts";
import type { Basics, LeaderWrite, Session, Store } from "../../../store/store.ts";
import { headViolations, type Offender, type Violations } from "./rules.ts";

export interface Healing {
  name: string;
  healed: number;
  last_at: number;
}

const healingsOf = (store: Store, environmentId: string): Promise<Healing[]> =>
  store.all(sql`SELECT name, healed, last_at FROM healings WHERE environment_id = ${environmentId}`);

const noteHealing = (
  session: Session,
  { environmentId, name, count, now }: { environmentId: string; name: string; count: number; now: Instant },
): Promise<number> =>
  session.run(sql`INSERT INTO healings (environment_id, name, healed, last_at)
    VALUES (${environmentId}, ${name}, ${sql.bigint(count)}, ${sql.bigint(now)})
    ON CONFLICT (environment_id, name) DO UPDATE SET healed = healings.healed + excluded.healed, last_at = excluded.last_at`);

const environmentsAfter = (store: Store, after: string, limit: number): Promise<{ id: string }[]> =>
  store.all(sql`SELECT id FROM environments WHERE id > ${after} ORDER BY id LIMIT ${limit}`);

/** The end of a log as its head says it, and as its last event does. */
const endsOf = (
  store: Store,
  environmentId: string,
): Promise<{ position: number; retention_floor: number; last: number | null; at: number } | undefined> =>
  store.one(sql`SELECT h.position, h.retention_floor, h.last_at AS at,
      (SELECT v.position FROM events v WHERE v.environment_id = ${environmentId}
        ORDER BY v.position DESC LIMIT 1) AS last
    FROM heads h WHERE h.environment_id = ${environmentId}`);

/** How long an integrity report is cached, and how long a caller waits for one. */
const integrityKeptMs = 1_000;
const integrityWaitMsMax = 5_000;
const lookAgainMs = 60_000;
/** What is under way may be out of balance for a moment; for longer than this, something does no work. */
const unbalancedMs = 60_000;
/** Checks of environments of which a node keeps the rows, for as long as the page after may be asked for. */
const listingsKeptMax = 16;

/**
 * One invariant that must hold in every environment. The capability whose rows it reads provides it; it is
 * cheap and bounded.
 */
export interface IntegrityCheck {
  /** `timers.overdue`. */
  name: string;
  /** What it counts. */
  about: string;
  run(environmentId: string): Promise<Violations>;
  /** The rows behind the count, where `run` does not answer them. */
  rows?(environmentId: string): Promise<readonly Offender[]>;
}

/** One row that a sweep repaired. */
export interface Healed {
  name: string;
  environmentId: string;
  id: string;
}

export interface CheckResult extends Omit<Violations, "rows"> {
  name: string;
  about: string;
  healed: number;
  healedAt: Instant | null;
  /** It threw: what it counts is not known. */
  isFailed: boolean;
}

export interface IntegrityReport {
  at: Instant;
  balanced: boolean;
  checks: CheckResult[];
}

export interface Integrity {
  /** At most `integrityKeptMs` old; undefined when the store does not answer in time. */
  report(environmentId: string): Promise<IntegrityReport | undefined>;
  /**
   * The rows behind the count of a check, the one that has waited longest first; bounded as the check is.
   * `not_found` for an unknown check; undefined when the store does not answer in time.
   */
  rows(environmentId: string, check: string): Promise<readonly Offender[] | undefined>;
  /** Notes what a sweep repaired: a row, a count, a line in the log. */
  healed(write: LeaderWrite, list: readonly Healed[]): Promise<void>;
  /**
   * What this node last found in the environment; undefined before it looked. Looks anew, without making the
   * caller wait, when that is more than a minute ago.
   */
  lastLook(environmentId: string): Pick<IntegrityReport, "at" | "balanced"> | undefined;
  /** The tick of loop `integrity.look`: some environments each time, so that health and metrics know. */
  lookOnce(): Promise<void>;
  /** The invariants that are broken, as far as this node has looked. */
  warnings(): string[];
  /** Of these, what was out of balance at every look for `unbalancedMs`. */
  troubles(): string[];
}

export interface IntegrityDeps extends Basics<"store" | "clock" | "log" | "metrics"> {
  checks: readonly IntegrityCheck[];
}

/** The log's own invariant: its head has the position of its last event. */
export const logCheck = (store: Store): IntegrityCheck => ({
  name: "events.head",
  about: "Events that the end of the log does not count, or counts without having them.",
  async run(environmentId) {
    const ends = await endsOf(store, environmentId);
    if (!ends) return { count: 0, oldest: null };
    // When every event has expired there is no last event, and the floor is after the end.
    const last = ends.last ?? Math.min(ends.position, Math.max(0, ends.retention_floor - 1));
    return headViolations({ ...ends, last });
  },
});

/** The answer of a query by its key, which is kept for a moment. */
function cachedOf<Value>(
  clock: Clock,
  all: Map<string, () => Promise<Value | undefined>>,
  { key, most }: { key: string; most: number },
  query: () => Promise<Value>,
): () => Promise<Value | undefined> {
  let asker = all.get(key);
  if (!asker) {
    if (all.size >= most) all.delete(all.keys().next().value!);
    asker = cachedQuery({ clock, keptMs: integrityKeptMs, waitMsMax: integrityWaitMsMax, query });
    all.set(key, asker);
  }
  return asker;
}

const labels = ["check"] as const;

function watchBalance(
  { clock, metrics, checks }: Pick<IntegrityDeps, "clock" | "metrics" | "checks">,
  seen: ReadonlyMap<string, IntegrityReport>,
  since: ReadonlyMap<string, number>,
): void {
  const found = metrics.gauge({
    name: "svc_integrity_offenders",
    help: "Rows out of balance in the environments that this node has looked at.",
    labels,
  });
  const lasts = metrics.gauge({
    name: "svc_integrity_unbalanced_seconds",
    help: "For how long the check has been out of balance in one environment, the longest.",
    labels,
  });
  metrics.beforeReading(() => {
    for (const { name } of checks) {
      let sum = 0;
      for (const report of seen.values())
        sum += report.checks.find((check) => check.name === name)?.count ?? 0;
      found(name).set(sum);
      const begun = [...since].flatMap(([key, at]) => (key.endsWith(`\n${name}`) ? at : []));
      lasts(name).set(begun.length === 0 ? 0 : (clock.elapsed() - Math.min(...begun)) / 1000);
    }
  });
}

export function openIntegrity({ store, clock, log, metrics, checks }: IntegrityDeps): Integrity {
  const cachedReports = new Map<string, () => Promise<IntegrityReport | undefined>>();
  const listings = new Map<string, () => Promise<readonly Offender[] | undefined>>();
  const seen = new Map<string, IntegrityReport>();
  const looks = new Map<string, Pick<IntegrityReport, "at" | "balanced">>();
  /** Since when each check of an environment counts more than zero, by the monotonic clock. */
  const since = new Map<string, number>();
  let after = "";
  const healedCount = metrics.counter({
    name: "svc_integrity_healed_total",
    help: "Rows that the sweeper put right.",
    labels,
  });
  for (const { name } of checks) healedCount(name);
  watchBalance({ clock, metrics, checks }, seen, since);

  /** A check that throws is out of balance itself, and holds up no other. */
  async function made({ name, run }: IntegrityCheck, environmentId: string) {
    const key = `${environmentId}\n${name}`;
    try {
      const { count, oldest } = await run(environmentId);
      if (count === 0) since.delete(key);
      else if (!since.has(key)) since.set(key, clock.elapsed());
      return { count, oldest, isFailed: false };
    } catch (error) {
      if (!since.has(key)) {
        since.set(key, clock.elapsed());
        log.error("integrity.check_failed", { check: name, environmentId, error });
      }
      return { count: 0, oldest: null, isFailed: true };
    }
  }

  async function look(environmentId: string): Promise<IntegrityReport> {
    const healings = new Map((await healingsOf(store, environmentId)).map((row) => [row.name, row]));
    const checked: CheckResult[] = [];
    for (const check of checks) {
      const healing = healings.get(check.name);
      checked.push({
        ...{ name: check.name, about: check.about },
        ...(await made(check, environmentId)),
        healed: healing?.healed ?? 0,
        healedAt: healing?.last_at ?? null,
      });
    }
    const report = {
      at: clock.now(),
      balanced: checked.every((check) => check.count === 0 && !check.isFailed),
      checks: checked,
    };
    if (looks.size >= integrityEnvironmentsMax) looks.delete(looks.keys().next().value!);
    looks.set(environmentId, { at: report.at, balanced: report.balanced });
    if (report.balanced) seen.delete(environmentId);
    else seen.set(environmentId, report);
    return report;
  }

  const unbalanced = (ms: number) =>
    [...seen].flatMap(([environmentId, { checks: list }]) =>
      list
        .filter(({ name }) => clock.elapsed() - (since.get(`${environmentId}\n${name}`) ?? Infinity) >= ms)
        .map(({ name, count, isFailed }) =>
          isFailed
            ? `${name}: the check fails, see integrity.check_failed in the log`
            : `${name}: ${count} out of balance, see /api/v1/integrity`,
        ),
    );

  const cachedReportOf = (environmentId: string) =>
    cachedOf(clock, cachedReports, { key: environmentId, most: integrityEnvironmentsMax }, () =>
      look(environmentId),
    );

  return {
    report: (environmentId) => cachedReportOf(environmentId)(),

    async rows(environmentId, name) {
      const check = checks.find((one) => one.name === name);
      if (!check) throw missing("check", name);
      const key = `${environmentId}\n${name}`;
      return cachedOf(clock, listings, { key, most: listingsKeptMax }, async () =>
        check.rows ? check.rows(environmentId) : ((await check.run(environmentId)).rows ?? []),
      )();
    },

    lastLook(environmentId) {
      const last = looks.get(environmentId);
      if (!last || last.at < clock.now() - lookAgainMs) void cachedReportOf(environmentId)();
      return last;
    },

    async healed(write, list) {
      const counts = new Map<string, { environmentId: string; name: string; count: number }>();
      for (const { environmentId, name, id } of list) {
        log.warn("integrity.healed", { check: name, environmentId, id });
        healedCount(name).add();
        const key = `${environmentId}\n${name}`;
        const { count } = counts.get(key) ?? { count: 0 };
        counts.set(key, { environmentId, name, count: count + 1 });
      }
      const now = clock.now();
      if (counts.size > 0)
        await write(async (session) => {
          for (const one of counts.values()) await noteHealing(session, { ...one, now });
        });
    },

    async lookOnce() {
      // Broken invariants are checked in every round, so that a warning ends with its reason.
      for (const id of [...seen.keys()]) await look(id);
      const slice = await environmentsAfter(store, after, 20);
      after = slice.length < 20 ? "" : (slice.at(-1)?.id ?? "");
      for (const { id } of slice) await look(id);
    },

    warnings: () => unbalanced(0),
    troubles: () => unbalanced(unbalancedMs),
  };
}
