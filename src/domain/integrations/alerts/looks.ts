import type { Instant } from "../../../kit/clock.ts";
import { countCap } from "../../../kit/limits.ts";
import { type Sql, sql } from "../../../kit/sql.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import type { StoreReader } from "../../../store/store.ts";
import type { Quotas } from "../../engine/quotas/service.ts";
import type { ConnectedWorkers } from "../../engine/serving/service.ts";
import { alertSubjectsMax } from "./limits.ts";
import { boundsOf, type RuleRow } from "./rule-rows.ts";
import { type ConditionName, type LookFindings, type Sighting, since } from "./rules.ts";

// What rules look at: counts, and heads of indexes. Nothing here reads runs.

const ofFunction = (functionId: string | null, name = "function_id"): Sql =>
  functionId === null ? sql.empty : sql`AND ${sql.raw(name)} = ${functionId}`;

/** Failures of each function since a rule asks for them, those that failed last first. */
const failureCounts = (
  reader: StoreReader,
  environmentId: string,
  functionId: string | null,
): Promise<{ function_id: string; count: number }[]> =>
  reader.all(sql`SELECT function_id, count FROM failure_counts
    WHERE environment_id = ${environmentId} ${ofFunction(functionId)} ORDER BY last_at DESC, function_id`);

const endsSince = async (
  reader: StoreReader,
  environmentId: string,
  minute: Instant,
): Promise<{ completed: number; failed: number }> =>
  (await reader.one<{
    completed: number;
    failed: number;
  }>(sql`SELECT CAST(COALESCE(sum(completed), 0) AS BIGINT) AS completed,
      CAST(COALESCE(sum(failed), 0) AS BIGINT) AS failed
    FROM flow_minutes WHERE environment_id = ${environmentId} AND minute >= ${sql.bigint(minute)}`))!;

/** The function whose first queued run waits longest: the head of each queue. */
const longestQueued = (
  reader: StoreReader,
  environmentId: string,
  functionId: string | null,
): Promise<{ id: string; at: Instant } | undefined> =>
  reader.one(sql`SELECT id, at FROM (
      SELECT f.id, (SELECT e.wake_at FROM executions e
        WHERE e.environment_id = f.environment_id AND e.function_id = f.id AND e.state = 'queued'
        ORDER BY e.wake_at LIMIT 1) AS at
      FROM functions f WHERE f.environment_id = ${environmentId} ${ofFunction(functionId, "f.id")}) heads
    WHERE at IS NOT NULL ORDER BY at, id LIMIT 1`);

/** Whether there is such a function that workers must ask for runs of. */
const isPulled = async (reader: StoreReader, environmentId: string, id: string): Promise<boolean> =>
  (await reader.one(sql`SELECT id FROM functions WHERE environment_id = ${environmentId} AND id = ${id}
    AND status = 'active' AND mode = 'pull'`)) !== undefined;

const missedSlots = (
  reader: StoreReader,
  environmentId: string,
  functionId: string | null,
): Promise<{ function_id: string; count: number }[]> =>
  reader.all(sql`SELECT function_id, CAST(sum(missed_count) AS BIGINT) AS count FROM schedules
    WHERE environment_id = ${environmentId} ${ofFunction(functionId)} AND missed_count > 0
    GROUP BY function_id ORDER BY function_id`);

/** Dead letters of both kinds, counted up to `countCap` each. */
const deadLetters = async (
  reader: StoreReader,
  environmentId: string,
): Promise<{ messages: number; webhooks: number }> =>
  (await reader.one<{ messages: number; webhooks: number }>(sql`SELECT
    (SELECT count(*) FROM (SELECT 1 FROM outbox WHERE environment_id = ${environmentId} AND dead_at IS NOT NULL
      LIMIT ${countCap}) m) AS messages,
    (SELECT count(*) FROM (SELECT 1 FROM webhook_dead_letters WHERE environment_id = ${environmentId}
      LIMIT ${countCap}) w) AS webhooks`))!;

/** Names of things in trouble, one more than a rule has alerts for. */
const named = (reader: StoreReader, from: Sql): Promise<{ name: string }[]> =>
  reader.all(sql`SELECT name FROM (${from}) named ORDER BY name LIMIT ${alertSubjectsMax + 1}`);

const openBreakers = (reader: StoreReader, environmentId: string, functionId: string | null) =>
  named(
    reader,
    sql`SELECT DISTINCT function_id AS name FROM breakers
      WHERE environment_id = ${environmentId} ${ofFunction(functionId)} AND opened_at IS NOT NULL`,
  );

const brokenProjections = (reader: StoreReader, environmentId: string) =>
  named(
    reader,
    sql`SELECT name FROM projections WHERE environment_id = ${environmentId} AND status = 'error'`,
  );

const stoppedEndpoints = (reader: StoreReader, environmentId: string) =>
  named(
    reader,
    sql`SELECT id AS name FROM webhook_endpoints
      WHERE environment_id = ${environmentId} AND status = 'disabled'`,
  );

export interface LookDeps {
  serving: Pick<ConnectedWorkers, "fresh">;
  quotasOf: Quotas["usesOf"];
  /** What this node found last of the invariants of the environment; undefined before it looked. */
  lastLook: (environmentId: string) => { balanced: boolean } | undefined;
}

interface AskedLook {
  reader: StoreReader;
  rule: RuleRow;
  /** What was counted at the last look; undefined before the first. */
  seen: Record<string, number> | undefined;
  now: Instant;
}

/** Undefined while it is not known: nothing opens then, and nothing is over. */
type LookAt = (asked: AskedLook) => Promise<LookFindings | undefined>;

const minuteMs = 60_000;
const functionsNamedMax = 3;

const plural = (count: number, one: string, many = `${one}s`): string =>
  `${count} ${count === 1 ? one : many}`;

const alone = (is: boolean, words: string | Sighting["words"], count = 1): Sighting[] =>
  is ? [{ subject: "", count, words: typeof words === "string" ? () => words : words }] : [];

const things = (found: readonly { name: string }[], detail: (name: string) => string): LookFindings => ({
  found: found
    .slice(0, alertSubjectsMax)
    .map(({ name }) => ({ subject: name, count: 1, words: () => detail(name) })),
  isCut: found.length > alertSubjectsMax,
});

const seconds = (ms: number): string => plural(Math.round(ms / 1_000), "second");

/** Of which functions, those with most failures first. */
function ofFunctions(counts: readonly { name: string; count: number }[]): string {
  const most = [...counts].sort((one, other) => other.count - one.count);
  const shown = most.slice(0, functionsNamedMax).map(({ name, count }) => `${name} (${count})`);
  const more = most.length - shown.length;
  return `${shown.join(", ")}${more > 0 ? `, and ${plural(more, "other")}` : ""}`;
}

/** A worker restarts, and what is under way is out of balance: only a second look in a row tells of it. */
function twice(is: boolean, seen: Record<string, number> = {}) {
  const looks = is ? Math.min(2, (seen.looks ?? 0) + 1) : 0;
  return { isTold: looks > 1, seen: { looks } };
}

/** Counts that grow, against those of the last look. */
function grown(
  counts: readonly { function_id: string; count: number }[],
  seen: Record<string, number> | undefined,
) {
  const now = Object.fromEntries(counts.map(({ function_id, count }) => [function_id, count]));
  const news = counts.flatMap(({ function_id: name, count }) => {
    // `hasOwn`: a function may be called `constructor`.
    const more = since(seen && Object.hasOwn(seen, name) ? seen[name] : undefined, count);
    return more > 0 ? [{ name, count: more }] : [];
  });
  return { seen: now, news: seen === undefined ? [] : news };
}

export function openLooks({ serving, quotasOf, lastLook }: LookDeps) {
  const looks: Record<ConditionName, LookAt> = {
    async run_failed({ reader, rule, seen }) {
      const counts = await failureCounts(reader, rule.environment_id, rule.function_id);
      const { news, seen: counted } = grown(counts, seen);
      const count = news.reduce((sum, one) => sum + one.count, 0);
      const words = (all: number) =>
        `${plural(all, "run")} failed; new since the last look: ${ofFunctions(news)}`;
      return { found: alone(count > 0, words, count), seen: counted };
    },

    async failure_share({ reader, rule, now }) {
      const { share = 1, window_minutes: minutes = 1, minimum = 1 } = boundsOf(rule);
      const first = Math.floor(now / minuteMs) * minuteMs - (minutes - 1) * minuteMs;
      const { completed, failed } = await endsSince(reader, rule.environment_id, first);
      const all = completed + failed;
      const percent = Math.round((100 * failed) / Math.max(1, all));
      const detail = `${failed} of ${plural(all, "run")} failed in ${plural(minutes, "minute")}: ${percent} %`;
      return { found: alone(failed > 0 && all >= minimum && failed / all >= share, detail, failed) };
    },

    async oldest_waiting({ reader, rule, now }) {
      const { waiting_ms: most = 0 } = boundsOf(rule);
      const first = await longestQueued(reader, rule.environment_id, rule.function_id);
      const waited = first ? now - first.at : 0;
      const detail = `a run of ${first?.id} has waited for a worker for ${seconds(waited)}`;
      return { found: alone(first !== undefined && waited >= most, detail) };
    },

    async no_worker({ reader, rule, seen }) {
      const { environment_id: environmentId, function_id: id } = rule;
      if (id === null || !(await isPulled(reader, environmentId, id))) return { found: [], seen: {} };
      const served = await serving.fresh(environmentId);
      if (!served) return undefined;
      const { isTold, seen: looks } = twice(!served.has(id), seen);
      const words = () => `no connected worker serves ${id}`;
      return { found: isTold ? [{ subject: id, count: 1, words }] : [], seen: looks };
    },

    async missed_schedule({ reader, rule, seen }) {
      const counts = await missedSlots(reader, rule.environment_id, rule.function_id);
      const { news, seen: counted } = grown(counts, seen);
      const found = news.slice(0, alertSubjectsMax).map(({ name, count }) => ({
        ...{ subject: name, count },
        words: (all: number) => `${plural(all, "slot")} of the schedule of ${name} missed`,
      }));
      return { found, seen: counted };
    },

    async dead_letter({ reader, rule }) {
      const { messages, webhooks } = await deadLetters(reader, rule.environment_id);
      const detail = `${plural(messages, "dead letter")} of the outbox, ${webhooks} of endpoints`;
      return { found: alone(messages + webhooks > 0, detail, messages + webhooks) };
    },

    async breaker_open({ reader, rule }) {
      const found = await openBreakers(reader, rule.environment_id, rule.function_id);
      return things(found, (name) => `the breaker of ${name} is open: its endpoint is not called`);
    },

    async projection_error({ reader, rule }) {
      const found = await brokenProjections(reader, rule.environment_id);
      return things(found, (name) => `projection ${name} stands still at an error`);
    },

    async endpoint_stopped({ reader, rule }) {
      const found = await stoppedEndpoints(reader, rule.environment_id);
      return things(found, (name) => `endpoint ${name} is disabled: it gets no events`);
    },

    async quota_near({ rule }) {
      const { share = 1 } = boundsOf(rule);
      const found = (await quotasOf(rule.environment_id)).filter(({ used, limit }) => used >= share * limit);
      return {
        found: found.map(({ quota, used, limit }) => ({
          ...{ subject: quota, count: 1, words: () => `quota ${quota}: ${used} of ${limit} used` },
        })),
      };
    },

    async integrity({ rule, seen }) {
      const last = lastLook(rule.environment_id);
      if (!last) return undefined;
      const { isTold, seen: looks } = twice(!last.balanced, seen);
      return { found: alone(isTold, "what is stored is out of balance: see Integrity"), seen: looks };
    },
  };

  return (reader: StoreReader, rule: RuleRow, now: Instant): Promise<LookFindings | undefined> =>
    looks[rule.condition]({
      ...{ reader, rule, now },
      seen: rule.seen === null ? undefined : storedJson<Record<string, number>>(rule.seen),
    });
}

export type LookAtRule = ReturnType<typeof openLooks>;
