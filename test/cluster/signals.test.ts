import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { createClient } from "../../src/sdk/index.ts";
import { isNight } from "../support/night.ts";
import { engines, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { type Journal, makeJournal, spawnWorker, type WorkerProcess } from "./workers.ts";

const senders = 3;
const each = 40;
const program = join(import.meta.dir, "signals-program.ts");

describe.each(engines.filter((engine) => isNight || engine === "postgres"))(
  "signals on %s, while a worker and a node are killed",
  (engine) => {
    let nodes: SpawnedServer[] = [];
    let journal: Journal;
    const workers: WorkerProcess[] = [];
    const addWorker = async (name: string, { url, adminKey }: SpawnedServer) =>
      workers.push(await spawnWorker(name, { url, key: adminKey }, { journal, program }));

    beforeAll(async () => {
      const first = await spawnServer({ engine, settings: { leaseMs: 1_500 } });
      nodes = [first];
      // A file of libSQL is one process's.
      if (engine === "postgres")
        nodes.push(await spawnServer({ engine, home: first.home, settings: { leaseMs: 1_500 } }));
      journal = await makeJournal();
      await addWorker("first", nodes.at(-1)!);
    }, 120_000);
    afterAll(async () => {
      await Promise.all(workers.map((worker) => worker.kill9()));
      for (const node of nodes.toReversed()) await node.stop();
      await journal?.remove();
    }, 120_000);

    test("each signal is taken once, those of a sender in its order", async () => {
      const [last] = nodes.slice(-1);
      const key = nodes[0]!.adminKey;
      const clientOf = (at: number) => createClient({ url: nodes[at % nodes.length]!.url, apiKey: key });
      const { runId } = await clientOf(0).invokeFunction("collects", {});
      let sent = 0;
      const send = (at: number, data: unknown, idempotencyKey: string) =>
        until(
          () =>
            clientOf(at)
              .runs.signal(runId, "add", data, { idempotencyKey })
              .catch(() => undefined),
          { about: `signal ${idempotencyKey}`, deadlineMs: 60_000 },
        );
      const breaking = (async () => {
        await until(() => sent > 20, { about: "some signals" });
        await workers[0]!.kill9();
        await addWorker("second", nodes[0]!);
        await until(() => sent > 60, { about: "more signals" });
        await last!.kill9();
        await last!.restart();
      })();
      await Promise.all(
        Array.from({ length: senders }, async (_, sender) => {
          for (let number = 0; number < each; number++) {
            // A caller that heard nothing sends it again, to another node.
            for (const at of [sender, sender + number])
              await send(at, [sender, number], `${sender}-${number}`);
            sent++;
          }
        }),
      );
      await breaking;
      await send(0, "stop", "stop");
      const run = await until(
        async () => {
          const found = await clientOf(0).getRun(runId);
          return found.status === "completed" && found;
        },
        { about: "the run to complete", deadlineMs: 60_000 },
      );
      const got = run.output as [number, number][];
      expect(got.length).toBe(senders * each);
      for (let sender = 0; sender < senders; sender++)
        expect(got.flatMap(([from, number]) => (from === sender ? number : []))).toEqual(
          Array.from({ length: each }, (_, at) => at),
        );
      const { kept, signals } = await clientOf(0).runs.signals(runId, { limit: 1 });
      expect([kept, signals[0]!.number]).toEqual([0, senders * each + 1]);
    }, 150_000);
  },
);
