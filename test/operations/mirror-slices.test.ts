import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { BusError, type Mirrored } from "../../src/bus/bus.ts";
import { openMirror } from "../../src/domain/record/outbox/mirror.ts";
import { silentLog } from "../../src/kit/log.ts";
import { noMetrics } from "../../src/kit/metrics.ts";
import { sql } from "../../src/kit/sql.ts";
import { engines } from "../support/server.ts";
import { clock, greedy, modest, type SharedStore, sharedStore } from "../support/shares.ts";

describe.each(engines)("slices of the mirror on %s", (engine) => {
  let shared: SharedStore;
  beforeAll(async () => {
    shared = await sharedStore(engine);
  });
  afterAll(() => shared.close());

  const headsAt = (position: number) =>
    shared.bare.write((session) =>
      session.run(
        sql`UPDATE heads SET position = ${position} WHERE environment_id IN (${greedy}, ${modest})`,
      ),
    );
  /** A mirror of events with so many characters, each, to a bus that answers what `takes` says. */
  const mirrorTo = (takes: (messages: readonly Mirrored[]) => boolean, charsOf: (env: string) => number) => {
    const sent: string[] = [];
    const mirror = openMirror({
      ...{ store: shared.bare, clock, log: silentLog, metrics: noMetrics, connected: () => true },
      payloadBytesMax: 1024 * 1024,
      outbox: {
        refused: async () => {
          throw new Error("nothing is refused here");
        },
      },
      past: {
        between: async (environmentId, { after, last }, limit) =>
          Array.from({ length: Math.min(limit, last - after) }, (_, at) => ({
            ...{ id: `evt_${after + at + 1}`, position: after + at + 1, name: "a.b", version: 1, at: 1 },
            data: JSON.stringify("x".repeat(charsOf(environmentId))),
            ...{ metadata: null, source: "api", idempotency_key: null },
          })) as never,
      },
      target: {
        async publish(messages) {
          if (!takes(messages)) throw new BusError("disconnected", "the bus did not answer in time");
          for (const { id } of messages) sent.push(id);
          return messages.map(() => undefined);
        },
      },
    });
    const reached = async () =>
      Object.fromEntries(
        (
          await shared.bare.all<{ environment_id: string; position: number }>(
            sql`SELECT environment_id, position FROM mirrors WHERE environment_id IN (${greedy}, ${modest})`,
          )
        ).map((row) => [row.environment_id, row.position]),
      );
    const tick = () => mirror.mirrorOnce(shared.bare.write);
    return { sent, reached, tick };
  };

  test("large events go in slices that the bus answers in time", async () => {
    await headsAt(100);
    const size = (messages: readonly Mirrored[]) =>
      messages.reduce((sum, one) => sum + one.payload.length, 0);
    const { sent, reached, tick } = mirrorTo(
      (messages) => size(messages) < 6 * 1024 * 1024,
      () => 500_000,
    );
    for (let round = 0; round < 20 && Object.values(await reached()).join() !== "100,100"; round++)
      await tick();
    expect(await reached()).toEqual({ [greedy]: 100, [modest]: 100 });
    expect(new Set(sent).size).toBe(sent.length / 2);
  });

  test("a log that the bus answers nothing for holds up none behind it", async () => {
    await headsAt(300);
    const isRefused = ({ payload }: Mirrored) => payload.length > 100_000;
    const chars = (environment: string) => (environment === [greedy, modest].sort()[0] ? 200_000 : 10);
    const { reached, tick } = mirrorTo((messages) => !messages.some(isRefused), chars);
    for (let round = 0; round < 6; round++) await tick();
    const [first, second] = [greedy, modest].sort();
    expect(await reached()).toEqual({ [first!]: 100, [second!]: 300 });
  });
});
