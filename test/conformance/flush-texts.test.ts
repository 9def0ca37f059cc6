import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { emitFlush } from "../../src/domain/engine/emit/flush.ts";
import type { NewEvent } from "../../src/domain/engine/emit/new-event.ts";
import { claimFlush, type FunctionDemand } from "../../src/domain/engine/runs/execution/claim.ts";
import { claimLimitedFlush } from "../../src/domain/engine/runs/execution/claim-limited.ts";
import { commitReportsFlush } from "../../src/domain/engine/runs/execution/commit-reports.ts";
import type { ExecutionChange } from "../../src/domain/engine/runs/execution/execution-change.ts";
import type { NewRun } from "../../src/domain/engine/runs/run.ts";
import { type NewMessage, publishFlush } from "../../src/domain/log/topics/flush.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import type { Sql } from "../../src/kit/sql.ts";
import { openLibsql } from "../../src/store/libsql.ts";
import { renderLibsql } from "../../src/store/libsql-text.ts";
import { migrate } from "../../src/store/migrate.ts";
import { postgresSeams, renderPostgres } from "../../src/store/postgres-text.ts";
import { schema } from "../../src/store/schema.ts";
import type { Flush, Store, SyncSession } from "../../src/store/store.ts";
import { plant } from "../support/plant.ts";
import { engines, type Home, makeHome } from "../support/server.ts";

const sizesMax = 300;
/** Sizes that libSQL is really asked for: those up to 33, and those around each that it rounds to. */
const sizesAsked = Array.from({ length: sizesMax }, (_, n) => n + 1).filter(
  (n) =>
    n <= 33 || [48, 64, 96, 128, 192, 256].some((size) => n === size || n === size + 1) || n === sizesMax,
);
const environments = Array.from({ length: sizesMax }, (_, n) => `env_${n}`);
const [one] = environments as [string];
const definitions = new Map(environments.map((id) => [id, 1]));
const now = 1_000;

let made = 0;
const idOf = (kind: string) => `${kind}_${String(++made).padStart(8, "0")}`;

const eventOf = (more: Partial<NewEvent> = {}): NewEvent => ({
  ...{ id: idOf("evt"), environmentId: one, name: "e", version: 1, data: "{}", metadata: null },
  ...{ source: "api", idempotencyKey: null, invokes: null, runId: null, entity: null, schema: null },
  ...{ runs: [], arms: [], ...more },
});

function startOf(more: Partial<NewRun> = {}, runs = 1): NewEvent {
  const event = eventOf();
  const run = (): NewRun => ({
    ...{ id: idOf("run"), environmentId: one, functionId: "f", functionVersion: 1, eventId: event.id },
    ...{ eventName: "e", mode: "pull", maxAttempts: 3, timeoutAt: null, actorId: null, laneId: null },
    ...{ lease: null, ...more },
  });
  return { ...event, runs: Array.from({ length: runs }, run) };
}

const lease = { hash: "h", workerId: "w", expiresAt: 2_000 };

const reportOf = ({ id }: NewRun, more: Partial<ExecutionChange>): ExecutionChange => ({
  ...{ runId: id, environmentId: one, executionSeq: 1, leaseHash: lease.hash, ends: null, next: "leased" },
  ...{
    wakeAt: 3_000,
    output: null,
    error: null,
    historyType: "run.progress",
    historyDetail: "{}",
    steps: [],
  },
  ...{ stepsTop: 0, waitingStepId: null, pending: null, undo: null, attributes: null, errorGroup: null },
  logs: null,
  ...more,
});
const step = (n: number): ExecutionChange["steps"][number] => ({
  ...{ stepId: `s${n}`, name: "s", type: "invoke", sequence: n, status: "completed", output: "1" },
  ...{ error: null, startedAt: 1, endedAt: 2, durationMs: 1, compensationFor: null, sleepUntil: null },
});
const pendingOf = (n: number): ExecutionChange["pending"] => ({
  ...{ stepId: `wait${n}`, name: "wait", sequence: 9, startedAt: 1, timeoutAt: 9_000, input: null },
  ...{ onTimeout: null, takesFailedSteps: false },
  for: { kind: "event", name: "paid", match: { path: "", valueHash: "", expression: null } },
});

const messageOf = (topic: string): NewMessage => ({
  ...{ id: idOf("msg"), environmentId: one, topic, data: "{}", metadata: null, idempotencyKey: null },
  runId: null,
});

const slots = (count: number): FunctionDemand["slots"] =>
  Array.from({ length: count }, (_, n) => ({ leaseHash: `l${n}`, workerId: "w", leaseUntil: 2_000 }));
const times = <T>(count: number, make: (n: number) => T): T[] =>
  Array.from({ length: count }, (_, n) => make(n));

type Ask = <I, R extends object>(flush: Flush<I, R>, input: I) => Promise<R[]>;

const emit = (ask: Ask, events: readonly NewEvent[], more: object = {}) =>
  ask(emitFlush, { now, events, definitions: new Map([[one, 1]]), ...more });
const report = (ask: Ask, changes: readonly ExecutionChange[]) => ask(commitReportsFlush, { now, changes });

/** Runs that are leased, for reports of them. */
async function leased(ask: Ask, count: number, more: Partial<NewRun> = {}): Promise<NewRun[]> {
  const events = times(count, () => startOf({ lease, ...more }));
  await emit(ask, events);
  return events.flatMap(({ runs }) => runs);
}
const cancels: NewRun["cancels"] = [
  { eventName: "stop", match: { path: "", valueHash: "", expression: null } },
];

/** What is flushed, of any size. The first asks are set-up, and their texts do not count. */
const flushes: Record<string, (n: number, ask: Ask, setUp: Ask) => Promise<unknown>> = {
  "events of one environment": (n, ask) =>
    emit(
      ask,
      times(n, () => eventOf()),
    ),
  "events of many environments": (n, ask) =>
    emit(
      ask,
      times(n, (at) => eventOf({ environmentId: environments[at]! })),
      { definitions: new Map([...definitions].slice(0, n)) },
    ),
  "events with keys": (n, ask) =>
    emit(
      ask,
      times(n, () => eventOf({ idempotencyKey: idOf("key") })),
    ),
  "events of metered environments": (n, ask) =>
    emit(
      ask,
      times(n, (at) => eventOf({ environmentId: environments[at]! })),
      { definitions: new Map([...definitions].slice(0, n)), metered: environments.slice(0, n) },
    ),
  "events that start a run each": (n, ask) =>
    emit(
      ask,
      times(n, () => startOf()),
    ),
  "events that start three runs each": (n, ask) =>
    emit(
      ask,
      times(n, () => startOf({}, 3)),
    ),
  "events that start runs with cancelOn": (n, ask) =>
    emit(
      ask,
      times(n, () => startOf({ cancels: [...cancels!, ...cancels!] })),
    ),
  "appends to streams": (n, ask) => {
    const ids = times(n, () => idOf("entity"));
    return emit(
      ask,
      ids.map((id) => eventOf({ entity: { id, type: "t", version: 1 } as NewEvent["entity"] })),
      {
        streams: ids.map((entityId) => ({
          ...{ environmentId: one, entityId, entityType: "t", base: 0, count: 1 },
        })),
      },
    );
  },
  "messages of as many topics": (n, ask) =>
    ask(publishFlush, { now, messages: times(n, (at) => messageOf(`t${at}`)) }),
  "claims of one function": async (n, ask, setUp) => {
    await emit(
      setUp,
      times(n, () => startOf()),
    );
    const demand = { environmentId: one, functionId: "f", since: 0, slots: slots(n) };
    await ask(claimFlush, { now, demands: [demand] });
  },
  "claims of as many functions": (n, ask) =>
    ask(claimFlush, {
      now,
      demands: times(n, (at) => ({
        ...{ environmentId: one, functionId: `f${at}`, since: 0, slots: slots(1) },
      })),
    }),
  "claims of as many lanes": (n, ask) =>
    ask(claimLimitedFlush, {
      now,
      demands: [
        {
          environmentId: one,
          functionId: "limited",
          laneIds: times(n, (at) => `lane${at}`),
          slots: slots(n),
        },
      ],
    }),
  "reports of steps": async (n, ask, setUp) => {
    const runs = await leased(setUp, n);
    await report(
      ask,
      runs.map((run) => reportOf(run, { steps: [step(0), step(1)], stepsTop: 2 })),
    );
  },
  "reports of lines": async (n, ask, setUp) => {
    const runs = await leased(setUp, n);
    const logs = { place: 0, total: 1, seen: 1, count: 1, lines: "[{}]", bytes: 2 };
    await report(
      ask,
      runs.map((run) => reportOf(run, { logs })),
    );
  },
  "reports that end runs": async (n, ask, setUp) => {
    const runs = await leased(setUp, n, { parent: { runId: "run_parent", stepId: "s", depth: 0 } });
    await report(
      ask,
      runs.map((run) => reportOf(run, { ends: "completed", steps: [step(0)], stepsTop: 1 })),
    );
  },
  "reports that end runs with cancelOn": async (n, ask, setUp) => {
    const runs = await leased(setUp, n, { cancels });
    await report(
      ask,
      runs.map((run) => reportOf(run, { ends: "completed" })),
    );
  },
  "reports of waits": async (n, ask, setUp) => {
    const runs = await leased(setUp, n);
    await report(
      ask,
      runs.map((run, at) =>
        reportOf(run, { next: "waiting", waitingStepId: `wait${at}`, pending: pendingOf(at) }),
      ),
    );
  },
};

/** Kinds of events that share flushes, each of which has parts of the text to itself. */
const kindsOfEvents: readonly (() => NewEvent)[] = [
  () => eventOf(),
  () => eventOf({ idempotencyKey: idOf("key") }),
  () => eventOf({ environmentId: environments[1]! }),
  () => startOf(),
  () => startOf({ cancels }),
  () => startOf({ headStartMs: 5 }),
  () => startOf({ parent: { runId: "run_parent", stepId: "s", depth: 0 } }),
];

/** 1, 2, 3, 4, 6, 8, 12, … 256, 384: what libSQL rounds up to. */
const roundedSizes = 17;
/** One text each, and another where a single environment is asked for alone. */
const postgresTextsMax = 2;

/** A flush is prepared once a text: of few texts, that is done in the first minute. */
describe.each(engines)("texts of flushes of every size on %s", (engine) => {
  let home: Home;
  let store: Store;
  const everyText = new Set<string>();
  beforeAll(async () => {
    home = await makeHome("libsql");
    store = await openLibsql({
      ...{ file: home.place.db, clock: systemClock(), log: silentLog, acceptLostCommits: true },
    });
    await migrate(store, schema, { clock: systemClock(), log: silentLog });
    const environment_id = "'env_' || (n - 1)";
    await plant(store, "heads", sizesMax, { environment_id, definitions_version: "1" });
    await plant(store, "topic_heads", sizesMax, { environment_id });
  });
  afterAll(async () => {
    await store?.close();
    await home?.remove();
  });

  test.each(Object.entries(flushes))(
    "%s",
    async (_, flushOf) => {
      const texts = new Set<string>();
      const ask: Ask = engine === "postgres" ? rendering(texts) : recording(store, texts);
      const setUp: Ask =
        engine === "postgres" ? rendering(new Set()) : (flush, input) => store.flush(flush, input);
      if (engine === "libsql") for (const n of sizesAsked) await flushOf(n, ask, setUp);
      else for (let n = 1; n <= sizesMax; n++) await flushOf(n, ask, setUp);
      for (const text of texts) everyText.add(text);
      if (engine === "postgres") expect([...texts].slice(postgresTextsMax)).toEqual([]);
      else {
        const sizesOf = Map.groupBy(texts, withoutRows);
        const much = [...sizesOf].flatMap(([text, own]) =>
          own.length > roundedSizes ? `${own.length} texts: ${text.slice(0, 300)}` : [],
        );
        expect(much).toEqual([]);
      }
    },
    60_000,
  );

  test("all of them come to few", () => {
    // libSQL keeps 500 prepared, the ones used last: a node meets few kinds at few sizes.
    expect(everyText.size).toBeLessThan(engine === "postgres" ? 24 : 600);
  });
});

test("on postgres a text follows from what is in a flush, not from how much", async () => {
  const all = new Set<string>();
  for (let kinds = 1; kinds < 1 << kindsOfEvents.length; kinds++) {
    const texts = new Set<string>();
    const chosen = kindsOfEvents.filter((_, at) => kinds & (1 << at));
    for (const times of [1, 2, 7, 40])
      await emit(rendering(texts), Array.from({ length: times }, () => chosen.map((make) => make())).flat(), {
        definitions,
      });
    expect(texts.size).toBe(1);
    for (const text of texts) all.add(text);
  }
  // Of 127 mixtures: a part stands for several kinds. Seen: 36.
  expect(all.size).toBeLessThanOrEqual(40);
});

/** Of PostgreSQL a text follows from the input alone. */
const rendering =
  (texts: Set<string>): Ask =>
  async (flush, input) => {
    texts.add(renderPostgres(flush.postgres(input, postgresSeams)).text);
    return [];
  };

/** On libSQL what is asked depends on what was answered. */
const recording =
  (store: Store, texts: Set<string>): Ask =>
  (flush, input) => {
    const noted = (query: Sql) => texts.add(renderLibsql(query).text);
    const heard = (session: SyncSession): SyncSession => ({
      ...session,
      all<R extends object>(query: Sql) {
        noted(query);
        return session.all<R>(query);
      },
      one<R extends object>(query: Sql) {
        noted(query);
        return session.one<R>(query);
      },
      run(query) {
        noted(query);
        return session.run(query);
      },
    });
    return store.flush({ ...flush, libsql: (session, given) => flush.libsql(heard(session), given) }, input);
  };

/** A statement whatever the count of its rows. */
const withoutRows = (text: string): string => text.replace(/(\(\?(, \?)*(, \d+)?\)(, )?)+/g, "(…)");
