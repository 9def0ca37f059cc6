import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { startNats } from "../support/nats.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { isSoak } from "../support/soak.ts";

const schemaJson = JSON.stringify({ type: "object", required: ["ok"] });
const roundsEachDoor = isSoak ? 143 : 7;
/** Callers whose events keep the flushes of both nodes going. */
const others = 2;

/** Emits an event without data; answers how it was refused, or "accepted". */
type Door = (node: TestServer, event: string) => Promise<string>;

const byRpc =
  (service: string, method: string, body: (event: string) => object): Door =>
  async (node, event) => {
    const { status, body: answer } = await node.rpc(service, method, body(event));
    return status === 200 ? "accepted" : `${status} ${answer.message}`;
  };
const stream = (event: string) => ({ entityId: `of.${event}`, entityType: "e", expectedVersion: -1 });

describe("schemas of two nodes whose bus went away", () => {
  let home: Home;
  let nodes: TestServer[] = [];
  const workers: Worker[] = [];

  beforeAll(async () => {
    const nats = await startNats();
    home = await makeHome("postgres");
    for (const _ of [1, 2]) nodes.push(await startTestServer({ engine: "postgres", nats: nats.url, home }));
    for (const [place, node] of nodes.entries()) {
      const emitter = createFunction({ id: `emitter-${place}` }, async ({ event, step }) => {
        const { name } = event.data as { name: string };
        return step.emit(name, {}).then(
          () => "accepted",
          (error: Error) => error.message,
        );
      });
      const { url, adminKey: apiKey } = node;
      const worker = createWorker({ url, apiKey, functions: [emitter], handleSignals: false });
      await worker.start();
      workers.push(worker);
    }
    await nats.stop();
  }, 120_000);
  afterAll(async () => {
    await Promise.all(workers.map((worker) => worker.stop()));
    await Promise.all(nodes.map((node) => node.stop()));
    nodes = [];
    await home?.remove();
  }, 120_000);

  const doors: [string, Door][] = [
    ["Emit", byRpc("SvcService", "Emit", (event) => ({ event }))],
    ["Trigger", byRpc("SvcService", "Trigger", (event) => ({ event }))],
    ["TriggerSync", byRpc("SvcService", "TriggerSync", (event) => ({ event }))],
    [
      "TriggerBatch",
      byRpc("SvcService", "TriggerBatch", (event) => ({ events: [{ event: "free" }, { event }] })),
    ],
    [
      "AppendEvent",
      byRpc("EntityStreamService", "AppendEvent", (event) => ({ ...stream(event), eventName: event })),
    ],
    [
      "AppendEvents",
      byRpc("EntityStreamService", "AppendEvents", (event) => ({
        streams: [{ ...stream(event), events: [{ eventName: "free" }, { eventName: event }] }],
      })),
    ],
    [
      "step.emit",
      async (node, name) => {
        const { url, adminKey: apiKey } = node;
        const client = createClient({ url, apiKey });
        const { output } = await client.invokeFunctionSync(`emitter-${nodes.indexOf(node)}`, { name });
        return String(output);
      },
    ],
  ];
  const emitters = () => {
    const over = new AbortController();
    const emitting = nodes.flatMap((node) =>
      Array.from({ length: others / nodes.length }, async () => {
        while (!over.signal.aborted) await node.rpc("SvcService", "Emit", { event: "other" });
      }),
    );
    return {
      async [Symbol.asyncDispose]() {
        over.abort();
        await Promise.all(emitting);
      },
    };
  };

  test(
    "one that is registered at either binds the next event of the other, at every door",
    async () => {
      await using _ = emitters();
      const wrong: string[] = [];
      let refused = 0;
      for (let round = 0; round < roundsEachDoor; round++)
        for (const [door, emit] of doors) {
          const [here, there] = round % 2 === 0 ? nodes : nodes.toReversed();
          const event = `${door}.${round}`;
          const says = async (about: string, wants: boolean) => {
            const answer = await emit(there!, event);
            const isRefused = answer.includes('must have the property "ok"');
            if (isRefused && wants) refused++;
            if (isRefused !== wants || (!wants && answer !== "accepted"))
              wrong.push(`${event} ${about}: ${answer}`);
          };
          const call = async (method: string, body: object) =>
            expect(await here!.rpc("EventSchemaService", method, body)).toMatchObject({ status: 200 });
          // Those who emit besides see to it that the node knows the definitions of before.
          if (round === 0) await says("before", false);
          await call("RegisterSchema", { eventName: event, schemaJson });
          await says("under the schema", true);
          if (round > 0) continue;
          await call("DeleteSchema", { eventName: event, version: 1 });
          await says("after", false);
        }
      expect(wrong).toEqual([]);
      expect(refused).toBe(roundsEachDoor * doors.length);
      const { body } = await nodes[0]!.rpc("EntityStreamService", "GetStreamInfo", {
        entityId: "of.AppendEvents.0",
      });
      // What was refused wrote nothing.
      expect(body.eventCount).toBe("4");
      if (isSoak) console.log(`${refused} of ${refused} refused`);
    },
    isSoak ? 900_000 : 60_000,
  );

  test("so does the mode of the environment", async () => {
    const [first, second] = nodes as [TestServer, TestServer];
    await first.rpc("EventSchemaService", "RegisterSchema", { eventName: "nodes.mode", schemaJson: "false" });
    const emit = async () => (await second.rpc("SvcService", "Emit", { event: "nodes.mode" })).status;
    expect(await emit()).toBe(400);
    await first.api("/api/v1/events/enforcement", { method: "PUT", body: { mode: "off" } });
    expect(await emit()).toBe(200);
  });
});
