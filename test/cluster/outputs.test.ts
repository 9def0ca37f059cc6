import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { isNight } from "../support/night.ts";
import {
  engines,
  type Home,
  makeHome,
  type SpawnedServer,
  spawnServer,
  startTestServer,
  type TestServer,
} from "../support/server.ts";
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

describe("an output at three nodes, whose bus goes down and comes back", () => {
  let nats: NatsServer;
  let home: Home;
  const nodes: TestServer[] = [];
  let worker: Worker | undefined;
  beforeAll(async () => {
    nats = await startNats();
    home = await makeHome("postgres");
    for (const nodeId of ["a", "b", "c"])
      nodes.push(await startTestServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId } }));
    await busIs(200);
  }, 120_000);
  afterAll(async () => {
    await worker?.drain({ timeoutMs: 2_000 });
    for (const node of nodes.toReversed()) await node.stop();
    await nats.stop();
    await home.remove();
  }, 60_000);

  const busIs = (status: number) =>
    Promise.all(
      nodes.map((node) =>
        until(async () => (await node.api("/ready")).status === status, { about: "the bus", everyMs: 20 }),
      ),
    );

  test("has each chunk once, in order, at each node, and ends at each", async () => {
    const key = nodes[0]!.adminKey;
    const clients = nodes.map(({ url }) => createClient({ url, apiKey: key }));
    const gates = [0, 1, 2].map(() => Promise.withResolvers<void>());
    const each = tokens / gates.length;
    const tells = createFunction({ id: "tells-three" }, ({ step, run }) =>
      step.run("tell", async () => {
        for (const [at, { promise }] of gates.entries()) {
          await promise;
          for (let token = 0; token < each; token++) await run.output("tokens").write(at * each + token);
        }
      }),
    );
    worker = createWorker({ client: clients[0]!, functions: [tells], handleSignals: false, log: silent });
    await worker.start();
    const { runId } = await clients[0]!.invokeFunction(tells, {});
    const read: unknown[][] = nodes.map(() => []);
    const reading = clients.map(async (client, at) => {
      for await (const { data } of client.runs.output(runId, "tokens")) read[at]!.push(data);
    });
    const haveAll = (count: number) =>
      until(() => read.every(({ length }) => length === count), {
        about: `${count} chunks`,
        deadlineMs: 20_000,
      });
    gates[0]!.resolve();
    await haveAll(each);
    await nats.kill9();
    gates[1]!.resolve();
    await haveAll(2 * each);
    await nats.restart({ wipe: true });
    await busIs(200);
    gates[2]!.resolve();
    await Promise.all(reading);
    const all = Array.from({ length: tokens }, (_, at) => at);
    expect(read).toEqual([all, all, all]);
  }, 120_000);
});
