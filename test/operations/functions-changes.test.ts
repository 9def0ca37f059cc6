import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import type { FunctionFrame } from "../../src/domain/engine/functions/definition.ts";
import { type DefinitionAt, openDefinitionAt } from "../../src/domain/engine/functions/definitions.ts";
import { type Functions, openFunctions } from "../../src/domain/engine/functions/service.ts";
import { cancelQueued } from "../../src/domain/engine/runs/wakes/due.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("what a change of a function brings about on %s", (engine) => {
  let server: TestServer;
  let definitionAt: DefinitionAt;
  let functions: Functions;
  let now = 1_000;
  const frames: FunctionFrame[] = [];
  /** What the queue was asked to cancel. */
  let cancelled: string[] = [];
  /** What happens right after it was, inside the transaction. */
  let afterLook: (() => Promise<void>) | undefined;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    definitionAt = openDefinitionAt(server.running.domain.store);
    functions = openFunctions({
      store: server.running.domain.store,
      clock: { now: () => now },
      ...{ ids: systemIds(systemClock()), log: silentLog },
      async cancelQueued(session, target) {
        cancelled.push(`${target.functionId} ${target.cause}`);
        const count = await cancelQueued(session, { ...target, now });
        await afterLook?.();
        return count;
      },
      announce(frame) {
        frames.push(frame);
      },
    });
  });
  afterAll(() => server.stop());
  beforeEach(() => {
    frames.length = 0;
    cancelled = [];
    afterLook = undefined;
    now += 1_000;
  });

  const env = "env_default";
  const told = () => frames.map(({ change, record }) => `${record.definition.id} ${change} ${record.status}`);

  test("is told once, after the commit, and only when something changed", async () => {
    await functions.register(env, { id: "told" }, "ak_1");
    await functions.register(env, { id: "told" }, "ak_1");
    await functions.register(env, { id: "told", name: "Told" }, "ak_1");
    await functions.setStatus(env, "told", "paused", "ak_1");
    await functions.setStatus(env, "told", "paused", "ak_1");
    await functions.delete(env, "told", "ak_1");
    expect(told()).toEqual([
      "told registered active",
      "told updated active",
      "told updated paused",
      "told deleted paused",
    ]);
    expect(frames.every((frame) => frame.at === now)).toBe(true);
  });

  test("is not told when it failed", async () => {
    const failing = [
      functions.register(env, { id: "a b" }, "ak_1"),
      functions.register("env_gone", { id: "a" }, "ak_1"),
      functions.setStatus(env, "nobody", "paused", "ak_1"),
      functions.delete(env, "nobody", "ak_1"),
    ];
    const outcomes = await Promise.allSettled(failing);
    expect(outcomes.map((outcome) => outcome.status === "rejected" && outcome.reason.kind)).toEqual([
      "invalid_argument",
      "not_found",
      "not_found",
      "not_found",
    ]);
    expect(told()).toEqual([]);
    const left = await server.running.domain.store.all(
      sql`SELECT id FROM functions WHERE environment_id = 'env_gone'`,
    );
    expect(left).toEqual([]);
  });

  test("a deletion looks at the queue again once nothing can join it", async () => {
    await functions.register(env, { id: "doomed" }, "ak_1");
    await functions.delete(env, "doomed", "ak_1");
    expect(cancelled).toEqual(["doomed function_deleted", "doomed function_deleted"]);
  });

  // On libSQL nobody writes while a transaction is open.
  if (engine === "postgres")
    test("an event that is emitted while its function is being deleted leaves no run in the queue", async () => {
      await functions.register(env, { id: "racing", triggers: [{ event: "race" }] }, "ak_1");
      let runIds: string[] = [];
      afterLook = async () => {
        afterLook = undefined;
        runIds = (await server.rpc("SvcService", "Emit", { event: "race" })).body.runIds;
      };
      await functions.delete(env, "racing", "ak_1");
      expect(runIds).toHaveLength(1);
      expect((await server.rpc("SvcService", "GetRun", { id: runIds[0] })).body).toMatchObject({
        status: "RUN_STATUS_CANCELLED",
        cancellationCause: "function_deleted",
      });
    });

  test("the definition of every version stays, also when the function is gone", async () => {
    await functions.register(env, { id: "pinned", name: "One" }, "ak_1");
    await functions.register(env, { id: "pinned", name: "Two" }, "ak_1");
    await functions.delete(env, "pinned", "ak_1");
    const names = [1, 2].map(async (version) => (await definitionAt(env, "pinned", version)).name);
    expect(await Promise.all(names)).toEqual(["One", "Two"]);
    const again = await functions.register(env, { id: "pinned", name: "Three" }, "ak_1");
    expect([again.created, again.record.version]).toEqual([true, 3]);
    await expect(definitionAt(env, "pinned", 4)).rejects.toThrow("never recorded");
  });

  test("many of one name at once all get a slug, and each function one version", async () => {
    const ids = Array.from({ length: 8 }, (_, at) => `same-name-${at}`);
    const answers = await Promise.all(
      [...ids, ...ids].map((id) => functions.register(env, { id, name: "Same Name" }, "ak_1")),
    );
    expect(answers.filter((answer) => answer.created)).toHaveLength(8);
    expect(answers.map((answer) => answer.record.version)).toEqual(answers.map(() => 1));
    expect(new Set(answers.map((answer) => answer.record.definition.slug)).size).toBe(8);
    expect(told().toSorted()).toEqual(ids.map((id) => `${id} registered active`));
  });

  test("after sixty of one name the next still gets a slug", async () => {
    for (let at = 0; at < 60; at++)
      await functions.register(env, { id: `crowded-${at}`, name: "Crowded" }, "ak_1");
    const { record } = await functions.register(env, { id: "last", name: "Crowded" }, "ak_1");
    expect(record.definition.slug).toBe("crowded-61");
  });
});
