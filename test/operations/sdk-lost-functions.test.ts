import { afterEach, describe, expect, test } from "bun:test";
import { createClient, createWorker } from "../../src/sdk/index.ts";
import { freePort } from "../support/process.ts";
import { engines, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("a worker whose server comes back on another database, on %s", (engine) => {
  const closing: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).toReversed()) await close();
  });

  const emptyHome = async () => {
    const home = await makeHome(engine);
    closing.push(() => home.remove());
    return home;
  };
  const maxAttemptsOf = async (server: TestServer, id: string) =>
    (await server.rpc("SvcService", "GetFunction", { id })).body.retry.maxAttempts;

  test.each(["rest", "stream"] as const)(
    "registers by %s what that one lacks, and nothing that it has",
    async (transport) => {
      const settings = { dev: true, port: await freePort(), drainMs: 100 };
      const [home, other] = [await emptyHome(), await emptyHome()];
      const before = await startTestServer({ engine, settings: { dev: true }, home: other });
      const newer = { id: "kept", triggers: [{ event: "kept.asked" }], retry: { maxAttempts: 7 } };
      expect((await before.rpc("SvcService", "RegisterFunction", newer)).status).toBe(200);
      await before.stop();

      const first = await startTestServer({ engine, settings, home });
      const client = createClient({ url: first.url });
      const warned: unknown[] = [];
      const worker = createWorker({
        ...{ client, transport, handleSignals: false },
        functions: ["kept", "lost", "gone"].map((id) =>
          client.createFunction({ id, event: `${id}.asked` }, () => `${id} ran`),
        ),
        log: {
          debug() {},
          info() {},
          error() {},
          warn: (_, { functionIds = [] } = {}) => void warned.push(functionIds),
        },
      });
      await worker.start();
      closing.push(() => worker.drain({ timeoutMs: 2_000 }));
      await first.stop();

      const second = await startTestServer({ engine, settings, home: other });
      closing.push(() => second.stop());
      for (const id of ["lost", "gone", "kept"]) {
        const runId = await until(async () => (await client.emit(`${id}.asked`, {})).runIds[0], {
          about: `a run of ${id}`,
        });
        expect(await client.waitForRun(runId)).toMatchObject({ status: "completed", output: `${id} ran` });
      }
      // A heartbeat may find it out beside a poll.
      expect(new Set(warned.flat())).toEqual(new Set(["lost", "gone"]));
      expect(await maxAttemptsOf(second, "kept")).toBe(7);
    },
    60_000,
  );
});
