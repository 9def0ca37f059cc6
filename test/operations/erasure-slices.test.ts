import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { endedStatuses } from "../../src/domain/record/erasure/rules.ts";
import { openErasure } from "../../src/domain/record/erasure/service.ts";
import { deleteRuns } from "../../src/domain/record/retention/rows.ts";
import { systemClock, testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { plant } from "../support/plant.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("many runs are deleted on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 60_000);
  afterAll(() => server.stop());

  const plantRuns = (count: number) =>
    plant(server.running.domain.store, "runs", count, {
      ...{
        environment_id: "'env_default'",
        id: "'run_many' || n",
        function_id: "'many'",
        event_id: "'evt' || n",
      },
      ...{ status: "'failed'", trouble: "'failed'", created_at: "n", ended_at: "n" },
    });
  const others = { log: silentLog, deleteRuns, forgetBytes: async () => {}, forgetCaptures: async () => {} };
  const { signal } = new AbortController();
  const asked = { functionId: "many", statuses: endedStatuses, limit: 10_000, signal };

  test("a call on a busy store ends with what it has deleted, and the next one goes on", async () => {
    const { store } = server.running.domain;
    await plantRuns(500);
    let elapsed = 0;
    const erasure = openErasure({
      ...{ ...others, store },
      clock: { ...testClock(), elapsed: () => (elapsed += 20_000), sleep: async () => {} },
    });
    const answers: { deleted: number; hasMore: boolean }[] = [];
    while (answers.at(-1)?.hasMore !== false)
      answers.push(await erasure.deleteMany("env_default", { ...asked, isDenied: async () => false }));
    expect(answers.length).toBeGreaterThan(1);
    expect(answers.reduce((sum, { deleted }) => sum + deleted, 0)).toBe(500);
  }, 60_000);

  test("calls at once take turns, a slice each", async () => {
    const { store } = server.running.domain;
    await plantRuns(900);
    let [underWay, most] = [0, 0];
    const write: typeof store.write = (work) =>
      store.write(async (session) => {
        most = Math.max(most, ++underWay);
        try {
          return await work(session);
        } finally {
          underWay--;
        }
      });
    const erasure = openErasure({ ...others, store: { ...store, write }, clock: systemClock() });
    const call = () => erasure.deleteMany("env_default", { ...asked, isDenied: async () => false });
    const answers = await Promise.all([call(), call(), call()]);
    expect(answers.reduce((sum, { deleted }) => sum + deleted, 0)).toBe(900);
    expect(most).toBe(1);
  }, 60_000);
});
