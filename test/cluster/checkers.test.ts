import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";
import {
  type AckedEmit,
  checkAll,
  checkHistory,
  checkOnce,
  checkPositions,
  checkRuns,
  checkWaits,
} from "../support/checkers.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { storeBeside } from "./load.ts";

/** What a doctored transaction ends with, so that nothing of it stays. */
class Undone extends Error {}

describe.each(engines)("checkers on %s", (engine) => {
  let server: TestServer;
  let store: Store;
  let now: number;
  const acked: AckedEmit[] = [];

  /** What a checker says of the database while `doctor`'s changes are in it. */
  async function doctored(
    statement: Parameters<Session["run"]>[0],
    check: (session: Session) => Promise<string[]>,
  ): Promise<string[]> {
    let said: string[] = [];
    await store
      .write(async (session) => {
        expect(await session.run(statement)).toBeGreaterThan(0);
        said = await check(session);
        throw new Undone();
      })
      .catch((error: unknown) => {
        if (!(error instanceof Undone)) throw error;
      });
    return said;
  }

  beforeAll(async () => {
    server = await startTestServer({ engine });
    store = await storeBeside(server);
    await server.rpc("SvcService", "RegisterFunction", {
      id: "doctored",
      triggers: [{ event: "doctor.me" }],
    });
    await server.api("/api/v1/workers/w/register", { body: { function_ids: ["doctored"] } });
    for (let n = 0; n < 6; n++) {
      const idempotencyKey = `key-${n}`;
      const { body } = await server.rpc("SvcService", "Emit", {
        event: "doctor.me",
        data: { n },
        idempotencyKey,
      });
      const position = Number(body.sequence);
      acked.push({
        environmentId: server.env,
        eventId: body.eventId,
        runIds: body.runIds,
        position,
        idempotencyKey,
      });
    }
    const { body } = await server.api("/api/v1/workers/w/jobs?available=3");
    const [job] = body.jobs;
    const { job_id, run_id, execution_seq, lease_token } = job;
    const report = { job_id, run_id, execution_seq, lease_token, status: "completed", output: 1 };
    const answer = await server.api(`/api/v1/workers/w/jobs/${job_id}`, { method: "PUT", body: report });
    expect(answer.status).toBe(200);
    const { execution_seq: seq, lease_token: token, ...waiting } = body.jobs[1];
    const yielded = await server.api(`/api/v1/workers/w/jobs/${waiting.job_id}`, {
      method: "PUT",
      body: {
        execution_seq: seq,
        lease_token: token,
        status: "yielded",
        yield: { step_id: "s", type: "wait_for_event", event_filter: { event: "doctor.came" } },
      },
    });
    expect(yielded.status).toBe(200);
    now = await store.now();
  });
  afterAll(async () => {
    await store?.close();
    await server?.stop();
  });

  test("a sound database passes all of them", async () => {
    expect(await checkAll(store, { acked, now })).toEqual([]);
    const states = await store.all(
      sql`SELECT state, COUNT(*) AS count FROM executions GROUP BY state ORDER BY state`,
    );
    expect(states).toEqual([
      { state: "leased", count: 1 },
      { state: "queued", count: 3 },
      { state: "waiting", count: 1 },
    ]);
  });

  const third = () => acked[2]!;
  const ended = sql`(SELECT id FROM runs WHERE status = 'completed' LIMIT 1)`;
  const alive = sql`(SELECT MIN(run_id) FROM executions WHERE state = 'leased')`;

  test.each([
    ["a position is missing", () => sql`DELETE FROM events WHERE position = 3`],
    ["the first is missing", () => sql`DELETE FROM events WHERE position = 1`],
    ["the last is missing", () => sql`DELETE FROM events WHERE position = 6`],
    ["the head ran ahead", () => sql`UPDATE heads SET position = position + 1 WHERE position > 0`],
    ["time went back", () => sql`UPDATE events SET at = at - 60000 WHERE position = 4`],
  ])("positions: %s", async (_what, statement) => {
    expect(await doctored(statement(), checkPositions)).not.toEqual([]);
  });

  test.each([
    ["an execution is gone", () => sql`DELETE FROM executions WHERE run_id = ${alive}`],
    ["a run is gone", () => sql`DELETE FROM runs WHERE id = ${alive}`],
    ["an ended run is still active", () => sql`UPDATE runs SET status = 'active' WHERE id = ${ended}`],
    ["an ended run has no end", () => sql`UPDATE runs SET ended_at = NULL WHERE id = ${ended}`],
    [
      "a running one is ended beside its execution",
      () => sql`UPDATE runs SET status = 'failed' WHERE id = ${alive}`,
    ],
    ["a wake is long past", () => sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${alive}`],
    ["a lease has no holder", () => sql`UPDATE executions SET lease_hash = NULL WHERE run_id = ${alive}`],
  ])("runs: %s", async (_what, statement) => {
    expect(await doctored(statement(), (session) => checkRuns(session, { now }))).not.toEqual([]);
  });

  test.each([
    ["nothing will wake it", () => sql`DELETE FROM waits`],
    ["its step is done", () => sql`UPDATE steps SET status = 'completed' WHERE status = 'waiting'`],
    ["its run is gone on", () => sql`UPDATE executions SET state = 'queued' WHERE state = 'waiting'`],
    ["nobody reads the log", () => sql`DELETE FROM matchers`],
    ["the reader ran ahead", () => sql`UPDATE matchers SET position = position + 100`],
    [
      "an invoke without a child",
      () => sql`UPDATE executions SET state = 'invoking' WHERE state = 'waiting'`,
    ],
    ["twins", () => sql`UPDATE runs SET parent_run_id = 'run_a', parent_step_id = 'a'`],
  ])("waits: %s", async (_what, statement) => {
    expect(await doctored(statement(), checkWaits)).not.toEqual([]);
  });

  test.each([
    ["an entry is missing", () => sql`DELETE FROM run_history WHERE run_id = ${ended} AND sequence = 2`],
    ["the end is missing", () => sql`DELETE FROM run_history WHERE run_id = ${ended} AND sequence = 3`],
    ["nothing is there", () => sql`DELETE FROM run_history WHERE run_id = ${alive}`],
    ["ended twice", () => sql`UPDATE run_history SET type = 'run.completed' WHERE run_id = ${ended}`],
    [
      "a fence that was there before",
      () => sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
        SELECT run_id, 3, environment_id, type, at, detail FROM run_history WHERE run_id = ${alive} AND sequence = 2`,
    ],
    [
      "an execution that counts wrong",
      () => sql`UPDATE executions SET history_count = 9 WHERE run_id = ${alive}`,
    ],
  ])("history: %s", async (_what, statement) => {
    expect(await doctored(statement(), checkHistory)).not.toEqual([]);
  });

  test.each([
    ["an acked event is gone", () => sql`DELETE FROM events WHERE id = ${third().eventId}`],
    ["it moved", () => sql`UPDATE events SET position = 99 WHERE id = ${third().eventId}`],
    ["its run is gone", () => sql`DELETE FROM runs WHERE event_id = ${third().eventId}`],
    [
      "it has two runs",
      () => sql`UPDATE runs SET event_id = ${third().eventId} WHERE event_id = ${acked[3]!.eventId}`,
    ],
    ["its key is another's too", () => sql`UPDATE events SET idempotency_key = 'key-2' WHERE position = 5`],
  ])("once: %s", async (_what, statement) => {
    expect(await doctored(statement(), (session) => checkOnce(session, acked))).not.toEqual([]);
  });

  test("once: a key that was acked as two events", async () => {
    const again = { ...third(), idempotencyKey: "key-0" };
    expect(await checkOnce(store, [acked[0]!, again])).not.toEqual([]);
  });

  test("nothing of this stayed", async () => {
    await until(async () => (await checkAll(store, { acked, now })).length === 0, {
      about: "a sound database",
    });
  });
});
