import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";
import {
  checkDebounced,
  checkEverySlot,
  checkLedgers,
  checkResults,
  overfullLanes,
} from "../support/engine-checkers.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { answerOf, type Program } from "../support/run-program.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { storeBeside } from "./load.ts";

/** What a doctored transaction ends with, so that nothing of it stays. */
class Undone extends Error {}

const program: Program = {
  id: "programmed",
  lines: [{ kind: "step", name: "line-0", failures: 0 }],
  endsBadly: false,
  maxAttempts: 3,
  concurrency: undefined,
};
const programs = new Map([[program.id, program]]);
const periodMs = 1_000;

// A checker that nothing has ever failed may be blind: each is shown a real database with one thing wrong in it.
describe.each(engines)("the engine's checkers on %s", (engine) => {
  let server: TestServer;
  let store: Store;
  const bursts = new Map<string, string[]>();

  const rpc = async (method: string, body: unknown) => (await server.rpc("SvcService", method, body)).body;

  async function doctored(
    statements: readonly Parameters<Session["run"]>[0][],
    check: (session: Session) => Promise<string[]>,
  ): Promise<string[]> {
    let said: string[] = [];
    await store
      .write(async (session) => {
        for (const statement of statements) expect(await session.run(statement)).toBeGreaterThan(0);
        said = await check(session);
        throw new Undone();
      })
      .catch((error: unknown) => {
        if (!(error instanceof Undone)) throw error;
      });
    return said;
  }

  const results = (session: Pick<Session, "all">) => checkResults(session, { programs, steered: new Map() });
  const debounced = (session: Pick<Session, "all">) =>
    checkDebounced(session, { functionId: "debounced", event: "burst", periodMs, bursts });
  const everySlot = (session: Pick<Session, "all">) => checkEverySlot(session, "ticker");

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { leaseMs: 600_000, pollHoldMs: 0 } });
    store = await storeBeside(server);
    await rpc("RegisterFunction", { id: "ticker", triggers: [{ cron: "* * * * * *" }] });
    await rpc("RegisterFunction", { id: program.id, triggers: [{ event: "program.begin" }] });
    await rpc("RegisterFunction", {
      id: "debounced",
      triggers: [{ event: "burst" }],
      debounce: { periodMs, key: "burst" },
    });
    await rpc("RegisterFunction", {
      id: "limited",
      triggers: [{ event: "limited.begin" }],
      concurrency: { limit: 1 },
    });
    for (const burst of ["a", "b"]) {
      // In one go: a pause between two of them as long as the period would make two bursts of it.
      const events = [0, 1].map((number) => ({ event: "burst", data: { burst, number } }));
      const { results } = await rpc("TriggerBatch", { events });
      bursts.set(
        burst,
        results.map(({ eventId }: { eventId: string }) => eventId),
      );
    }
    const worker = pullWorker(server, "w");
    await worker.register(program.id);
    for (const input of ["one", "two"]) {
      await rpc("Emit", { event: "program.begin", data: { input } });
      const job = await until(async () => (await worker.poll())[0], { about: "a job" });
      await worker.complete(job, [answerOf(input, "line-0")]);
    }
    const limited = pullWorker(server, "l");
    await limited.register("limited");
    for (let number = 0; number < 2; number++)
      await rpc("Emit", { event: "limited.begin", data: { number } });
    await until(async () => (await limited.poll()).length === 1, { about: "a lease in the lane" });
    await until(
      async () =>
        (await store.all(sql`SELECT 1 AS one FROM debounces`)).length === 0 &&
        (await store.all(sql`SELECT 1 AS one FROM schedules WHERE fired_count >= 2`)).length === 1,
      { about: "bursts and two slots", deadlineMs: 20_000 },
    );
    // No slot may come between a change and what a checker says of it.
    await rpc("UpdateFunctionStatus", { id: "ticker", status: "FUNCTION_STATUS_PAUSED" });
    await server.running.tick("schedules.tick");
    await store.write((session) =>
      session.run(sql`UPDATE schedules SET next_at = (created_at / 1000 + 1 + expected_count) * 1000`),
    );
  }, 120_000);
  afterAll(async () => {
    await store?.close();
    await server?.stop();
  });

  const tickerRun = sql`(SELECT MIN(id) FROM runs WHERE function_id = 'ticker')`;
  const programRun = sql`(SELECT MIN(id) FROM runs WHERE function_id = 'programmed')`;
  const lastOfA = () => bursts.get("a")!.at(-1)!;
  const firstOfA = () => bursts.get("a")![0]!;
  const copied = (
    eventId: string,
  ) => sql`INSERT INTO runs (id, environment_id, function_id, function_version, event_id,
      event_name, mode, status, attempt, max_attempts, created_at, updated_at, execution_seq)
    SELECT ${`run_copied_${eventId}`}, environment_id, 'debounced', 1, ${eventId}, event_name, mode, status, attempt,
      max_attempts, created_at, updated_at, execution_seq FROM runs
    WHERE id = (SELECT MIN(id) FROM runs WHERE function_id = 'debounced')`;

  test("a sound database passes all of them", async () => {
    for (const check of [results, checkLedgers, debounced, everySlot, overfullLanes])
      expect({ check: check.name, said: await check(store) }).toEqual({ check: check.name, said: [] });
  });

  test.each([
    ["a slot's run is gone", () => [sql`DELETE FROM runs WHERE id = ${tickerRun}`], "runs"],
    [
      "a slot has two runs",
      () => [
        sql`UPDATE runs SET function_id = 'ticker', event_id = (SELECT event_id FROM runs WHERE id = ${tickerRun})
          WHERE id = ${programRun}`,
      ],
      "runs",
    ],
    [
      "a slot is counted as fired and as missed",
      () => [sql`UPDATE schedules SET missed_count = missed_count + 1`],
      "is not",
    ],
  ])("cron ledger: %s", async (_what, statements, named) => {
    expect((await doctored(statements(), checkLedgers)).join()).toMatch(
      new RegExp(`cron of ticker.*${named}`),
    );
  });

  test("cron: slots that nobody counted", async () => {
    const said = await doctored([sql`UPDATE schedules SET next_at = next_at + 9000`], everySlot);
    expect(said.join()).toContain("cron of ticker");
  });

  test.each([
    ["an acked event is gone", () => [sql`DELETE FROM events WHERE id = ${firstOfA()}`], "is not there"],
    [
      "its last event started nothing",
      () => [sql`DELETE FROM runs WHERE event_id = ${lastOfA()}`],
      "started nothing",
    ],
    ["an event between started a run too", () => [copied(firstOfA())], "fired 2 times"],
    ["the last event started two runs", () => [copied(lastOfA())], "fired 2 times"],
  ])("debounce: %s", async (_what, statements, named) => {
    expect((await doctored(statements(), debounced)).join()).toContain(named);
  });

  test.each([
    [
      "more leases than the limit",
      () => [sql`UPDATE executions SET state = 'leased' WHERE function_id = 'limited' AND state = 'queued'`],
    ],
    [
      "a limit lower than what is leased",
      () => [sql`UPDATE functions SET lane_limit = 0 WHERE id = 'limited'`],
    ],
  ])("limits: %s", async (_what, statements) => {
    expect((await doctored(statements(), overfullLanes)).join()).toContain("hold lane");
  });

  test.each([
    ["another output", () => [sql`UPDATE runs SET output = '["x"]' WHERE id = ${programRun}`], "answers"],
    ["another end", () => [sql`UPDATE runs SET status = 'failed' WHERE id = ${programRun}`], "is failed"],
    [
      "two runs of one start",
      () => [
        sql`UPDATE runs SET event_id = (SELECT event_id FROM runs WHERE id = ${programRun})
          WHERE function_id = 'programmed'`,
      ],
      "runs twice",
    ],
  ])("results: %s", async (_what, statements, named) => {
    expect((await doctored(statements(), results)).join()).toContain(named);
  });
});
