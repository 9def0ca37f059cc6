import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  type AttributeFilterInput,
  type AttributeRange,
  readFilters,
} from "../../src/domain/engine/attributes/rules.ts";
import { debounceCheck } from "../../src/domain/engine/debounce/service.ts";
import { errorChecks, listGroups } from "../../src/domain/engine/errors/service.ts";
import { findRuns } from "../../src/domain/engine/runs/attributes/find-runs.ts";
import { asleep, lostRuns, orphans, runChecks } from "../../src/domain/engine/runs/invariants.ts";
import { pageOfRuns } from "../../src/domain/engine/runs/lists/page-of-runs.ts";
import { scheduleChecks } from "../../src/domain/engine/schedules/service.ts";
import { openEventLog } from "../../src/domain/log/core/service.ts";
import { topicChecks } from "../../src/domain/log/topics/invariants.ts";
import { groupCheck } from "../../src/domain/realtime/groups/service.ts";
import { type IntegrityCheck, logCheck } from "../../src/domain/record/integrity/service.ts";
import { bucketCheck } from "../../src/domain/state/kv/service.ts";
import { testClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { storeOf } from "../cluster/load.ts";
import { lookingAt, rowsReadFor } from "../support/plan-rows.ts";
import { type Home, makeHome } from "../support/server.ts";

const rowsMax = 200_000;
const now = 1_700_000_000_000;

// A report of a small environment must not cost what its neighbours have, whatever the statistics say.
describe("plans of the integrity checks beside 200,000 runs", () => {
  // No server: its sweep would set to work.
  let home: Home;
  let store: Store;
  let checks: IntegrityCheck[];
  let slices: Record<string, () => Promise<unknown>>;
  let finds: Record<string, (environmentId: string) => Promise<unknown>>;
  let read = 0;

  const fill = (environmentId: string, count: number) => [
    sql`INSERT INTO heads (environment_id, position, last_at, epoch, definitions_version, retention_floor)
      VALUES (${environmentId}, ${count}, ${now}, 1, 1, 0)`,
    sql`INSERT INTO runs (id, environment_id, function_id, function_version, event_id, event_name, mode, status, attempt,
        max_attempts, created_at, updated_at, execution_seq, error_group)
      SELECT ${environmentId} || n, ${environmentId}, 'f' || n % 50, 1, 'e' || n, 'e', 'pull', 'active', 1, 3, n, n, 1,
        CASE WHEN n % 10 = 0 THEN 'err_' || n % 100 END
      FROM generate_series(1, ${sql.bigint(count)}) n`,
    sql`INSERT INTO run_attributes (environment_id, run_id, name, value, created_at)
      SELECT ${environmentId}, ${environmentId} || n, 'place', 's' || lpad(n::text, 8, '0'), n
      FROM generate_series(1, ${sql.bigint(count)}) n
      UNION ALL SELECT ${environmentId}, ${environmentId} || n, 'third', 'n' || n % 10, n
      FROM generate_series(3, ${sql.bigint(count)}, 3) n`,
    sql`INSERT INTO error_groups (environment_id, id, function_id, code, message, frame, count, first_seen_at, last_seen_at,
        sample_run_id)
      SELECT ${environmentId}, 'err_' || n, 'f' || n % 50, '', 'm', '', ${sql.bigint(count)}, n, n, 'r'
      FROM generate_series(0, 5000) n`,
    sql`INSERT INTO executions (run_id, environment_id, function_id, function_version, state, wake_at, execution_seq, attempt,
        max_attempts, step_count, history_count, lost_count, waiting_step_id, lane_id, claimed_at)
      SELECT ${environmentId} || n, ${environmentId}, 'f' || n % 50, 1,
        CASE n % 4 WHEN 0 THEN 'queued' WHEN 1 THEN 'leased' WHEN 2 THEN 'waiting' ELSE 'invoking' END,
        ${sql.bigint(now * 2)}, 1, 1, 3, 0, 1, 0, 's', CASE WHEN n % 50 < 5 THEN ${environmentId} || 'lane' || n % 50 END, ${sql.bigint(now)}
      FROM generate_series(1, ${sql.bigint(count)}) n`,
    sql`INSERT INTO waits (run_id, kind, step_id, environment_id, event_name, match_path, value_hash, from_position, fresh_at)
      SELECT ${environmentId} || n, 'wait', 's', ${environmentId}, 'w' || n % 100, '', '', 1, NULL
      FROM generate_series(2, ${sql.bigint(count)}, 4) n`,
    sql`INSERT INTO events (environment_id, position, id, name, version, data, source, at)
      SELECT ${environmentId}, n, ${environmentId} || 'e' || n, 'other' || n % 100, 1, '{}', 'api', n
      FROM generate_series(1, ${sql.bigint(count)}) n`,
    sql`INSERT INTO matchers (environment_id, position) VALUES (${environmentId}, ${sql.bigint(count - 100)})`,
    sql`INSERT INTO topic_heads (environment_id, position, last_at, retention_floor)
      VALUES (${environmentId}, ${count}, ${now}, 0)`,
    // One is missing, so that the gap is looked for, too.
    sql`INSERT INTO topic_messages (environment_id, position, id, topic, data, at)
      SELECT ${environmentId}, n, ${environmentId} || 'm' || n, 't' || n % 100, '{}', n
      FROM generate_series(1, ${sql.bigint(count)}) n WHERE n <> ${count - 20}`,
    sql`INSERT INTO consumer_groups (environment_id, namespace, name, id, log, pattern, ack_mode, backpressure, max_inflight,
        max_redeliveries, redeliver_delay_ms, status, version, position, dropped_count, given_up_count, created_at, updated_at)
      SELECT ${environmentId}, 'default', 'g' || n, 'group_' || n, CASE n % 2 WHEN 0 THEN 'events' ELSE 'topics' END, 'topic:>',
        'manual', 'block', 100, 3, 5000, 'active', 1, ${sql.bigint(count)}, 0, 0, 1, 1
      FROM generate_series(1, ${sql.bigint(Math.min(count, 1_000))}) n`,
    sql`INSERT INTO group_deliveries (environment_id, group_id, position, event_id, attempt, spent_count, lost_count,
        consumer_id, due_at)
      SELECT ${environmentId}, 'group_' || n % ${Math.min(count, 1_000)}, n, 'e' || n, 1, 0, 0, 'c', 1
      FROM generate_series(1, ${sql.bigint(count)}) n`,
    sql`INSERT INTO kv_buckets (environment_id, id, name, value_bytes_max, history_max, revision, value_count, bytes, created_at)
      SELECT ${environmentId}, 'bucket_' || n, 'bucket_' || n, 100, 1, ${sql.bigint(count)}, 1, 1, 1 FROM generate_series(1, 10) n`,
    sql`INSERT INTO kv_keys (environment_id, bucket_id, key, revision, operation, bytes, created_at, value)
      SELECT ${environmentId}, 'bucket_' || (n % 10 + 1), 'k' || n, n, 'put', 1, 1, 'eA=='
      FROM generate_series(1, ${sql.bigint(count)}) n`,
  ];

  beforeAll(async () => {
    home = await makeHome("postgres");
    store = await storeOf(home);
    await store.write(async (session) => {
      for (const [environmentId, count] of [
        ["env_large", rowsMax],
        ["env_small", 40],
      ] as const)
        for (const statement of fill(environmentId, count)) await session.run(statement);
    });
    const reader = lookingAt(store, async (query) => {
      read += await rowsReadFor(store, query);
    });
    const clock = testClock(now);
    checks = [
      logCheck(reader),
      ...runChecks(reader, clock),
      debounceCheck(reader, clock),
      ...scheduleChecks(reader, clock),
      ...topicChecks(reader),
      groupCheck(reader),
      bucketCheck(reader),
      ...errorChecks(reader),
    ];
    const filters = (...given: AttributeFilterInput[]) => readFilters("attributes", given);
    const find = (environmentId: string, attributes: AttributeRange[], order?: string) =>
      findRuns(reader, {
        filter: { environmentId, statuses: [], attributes },
        order: order === undefined ? undefined : { name: order, isAscending: false },
        ...{ cursor: undefined, size: 20 },
      });
    const many = { name: "place", op: "gt", text: "00000010" };
    const failed = { name: "third", op: "exists" };
    finds = {
      one: (id) => find(id, filters({ name: "place", text: "00000007" })),
      many: (id) => find(id, filters(many)),
      ordered: (id) => find(id, [], "place"),
      both: (id) => find(id, filters(many, failed), "place"),
      few: (id) => find(id, filters(many, { name: "place", op: "prefix", text: "0000001" })),
      // Half of the runs meet each, and none both.
      neither: (id) =>
        find(id, filters({ name: "place", op: "lt", text: "00100000" }, { ...many, text: "00100000" })),
      group: (id) => pageOfRuns(reader, { environmentId: id, statuses: [], errorGroup: "err_1" }, {}),
      // Nothing that is looked for here is there.
      searched: (id) => pageOfRuns(reader, { environmentId: id, statuses: [], search: "nothing" }, {}),
      said: (id) => pageOfRuns(reader, { environmentId: id, statuses: [], errorText: "nothing" }, {}),
      named: (id) => pageOfRuns(reader, { environmentId: id, statuses: [], eventName: "nothing" }, {}),
      function: (id) =>
        pageOfRuns(reader, { environmentId: id, statuses: ["completed"], functionId: "f1" }, {}),
      failed: (id) => pageOfRuns(reader, { environmentId: id, statuses: ["failed", "cancelled"] }, {}),
      undone: (id) =>
        pageOfRuns(reader, { environmentId: id, statuses: [], undoFailed: true, search: "f" }, {}),
      live: (id) => pageOfRuns(reader, { environmentId: id, statuses: ["waiting", "failed"] }, {}),
      begun: (id) => pageOfRuns(reader, { environmentId: id, statuses: [], search: "run_01abcdefg" }, {}),
      ofEvent: (id) => pageOfRuns(reader, { environmentId: id, statuses: ["completed"], eventId: "e7" }, {}),
      eventsNamed: (id) => openEventLog(reader).list(id, { name: "nothing" }),
      eventsSearched: (id) => openEventLog(reader).list(id, { search: "nothing" }),
      eventsFrom: (id) => openEventLog(reader).list(id, { source: "cron", names: "other7" }),
      groups: (id) =>
        listGroups(
          reader,
          { environmentId: id, functionId: "f1", since: undefined },
          { after: undefined, limit: 20 },
        ),
    };
    slices = {
      lostRuns: () => lostRuns(reader, ""),
      orphans: () => orphans(reader, ""),
      asleep: () => asleep(reader, ""),
    };
  }, 120_000);
  afterAll(async () => {
    await store.close();
    await home.remove();
  });

  const costs = async (environmentId: string) => {
    const costs: Record<string, number> = {};
    for (const check of checks) {
      read = 0;
      await check.run(environmentId);
      costs[check.name] = read;
    }
    return costs;
  };

  test("a slice of the sweep reads a slice", async () => {
    for (const [name, slice] of Object.entries(slices)) {
      read = 0;
      await slice();
      expect(`${name} ${read <= 12_000 ? "is" : `reads ${read} rows, is not`} bounded`).toBe(
        `${name} is bounded`,
      );
    }
  });

  test.each(["never analysed", "analysed"])(
    "runs are found by reading what is looked at: %s",
    async (state) => {
      if (state === "analysed") await store.write((session) => session.run(sql`ANALYZE`));
      // Nobody has counted a table that was never analysed: what is few may be sorted.
      const mosts = { env_small: 4_000, ...(state === "analysed" && { env_large: 60_000 }) };
      for (const [environmentId, most] of Object.entries(mosts))
        for (const [name, find] of Object.entries(finds)) {
          read = 0;
          await find(environmentId);
          expect(
            `${name} of ${environmentId} ${read <= most ? "is" : `reads ${read} rows, is not`} bounded`,
          ).toBe(`${name} of ${environmentId} is bounded`);
        }
    },
    60_000,
  );

  test.each(["never analysed", "analysed"])(
    "read little where there is little: %s",
    async (state) => {
      if (state === "analysed") await store.write((session) => session.run(sql`ANALYZE`));
      for (const [name, cost] of Object.entries(await costs("env_small")))
        expect(`${name} ${cost <= 1_000 ? "is" : `reads ${cost} rows, is not`} cheap`).toBe(
          `${name} is cheap`,
        );
      // Of a large one as much as is looked at once, with a lookup or two a row; the newest runs may be sorted for as long as
      // nobody has counted them.
      if (state === "never analysed") return;
      for (const [name, cost] of Object.entries(await costs("env_large")))
        expect(`${name} ${cost <= 60_000 ? "is" : `reads ${cost} rows, is not`} bounded`).toBe(
          `${name} is bounded`,
        );
    },
    60_000,
  );
});
