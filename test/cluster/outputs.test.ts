import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { isNight } from "../support/night.ts";
import { engines, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const tokens = 120;
const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines.filter((engine) => isNight || engine === "postgres"))(
  "an output on %s, while its node is killed",
  (engine) => {
    let nodes: SpawnedServer[] = [];
    let worker: Worker | undefined;
    let written = 0;
    let isKilled = false;

    beforeAll(async () => {
      const first = await spawnServer({ engine, settings: { leaseMs: 30_000 } });
      nodes = [first];
      // Without a bus the reader at the other node looks each second.
      if (engine === "postgres") nodes.push(await spawnServer({ engine, home: first.home }));
    }, 120_000);
    afterAll(async () => {
      await worker?.drain({ timeoutMs: 2_000 });
      for (const node of nodes.toReversed()) await node.stop();
    }, 60_000);

    test("has each chunk once, in order, at whatever node it is read", async () => {
      const [first] = nodes as [SpawnedServer];
      const last = nodes.at(-1)!;
      const clientOf = ({ url }: SpawnedServer) => createClient({ url, apiKey: first.adminKey });
      const tells = createFunction({ id: "tells" }, ({ step, run }) =>
        step.run("tell", async () => {
          const out = run.output("tokens");
          for (; written < tokens; written++) {
            if (written === tokens / 2) await until(() => isKilled, { about: "the kill" });
            // Now and then it waits for what is stored, as a handler that heeds its reader does.
            const stored = out.write(written);
            if (written % 10 === 9) await stored;
          }
        }),
      );
      worker = createWorker({
        client: clientOf(first),
        functions: [tells],
        handleSignals: false,
        log: silent,
      });
      await worker.start();
      const { runId } = await clientOf(last).invokeFunction(tells, {});
      const read: unknown[] = [];
      const reading = (async () => {
        for await (const { data } of clientOf(last).runs.output(runId, "tokens")) read.push(data);
      })();
      await until(() => read.length >= tokens / 2 - 10, { about: "half of it" });
      await first.kill9();
      isKilled = true;
      await first.restart();
      await reading;
      expect(read).toEqual(Array.from({ length: tokens }, (_, at) => at));
      expect((await clientOf(first).getRun(runId)).status).toBe("completed");
    }, 120_000);
  },
);
