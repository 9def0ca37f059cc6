import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { clock, emitUntilAcked, storeOf } from "../cluster/load.ts";
import { chanceOf } from "../support/chance.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { mayMount } from "../support/disk.ts";
import { engines } from "../support/server.ts";
import { until } from "../support/until.ts";
import { type SmallDiskWorld, says, startOnSmallDisk } from "./small-disk.ts";

/** Left for events before the disk is full. */
const leftBytes = 3 * 1024 * 1024;
const textBytes = 20_000;

describe.each(engines)("a disk that runs full under %s", (engine) => {
  let world: SmallDiskWorld;

  beforeAll(async () => {
    if (mayMount) world = await startOnSmallDisk(engine);
  }, 90_000);
  afterAll(() => world?.stop(), 60_000);

  test.skipIf(!mayMount)(
    "refuses what it cannot keep, says why, goes on when there is room, and lost nothing",
    async () => {
      const { server, disk, home } = world;
      const tenant = { environmentId: "env_default", key: server.adminKey };
      const acked: AckedEmit[] = [];
      const chance = chanceOf("a disk that runs full");
      // PostgreSQL would store what repeats itself in a hundredth of the room.
      const text = Array.from({ length: textBytes }, () => chance.between(0, 35).toString(36)).join("");
      const emit = async (number: number) => {
        const emission = { event: "big.one", data: { number, text }, idempotencyKey: `k-${number}` };
        return emitUntilAcked(emission, { url: () => server.url, tenant, triesMax: 1 });
      };
      const makeRoom = disk.fill(leftBytes);
      let refusal = "";
      for (let number = 0; refusal === "" && number < 2_000; number++)
        await emit(number).then(
          (ack) => acked.push(ack),
          (error: Error) => {
            refusal = error.message;
          },
        );
      expect(acked.length).toBeGreaterThan(10);
      expect(refusal).toContain("503");
      // It still answers, and what is there can be read.
      expect((await server.api("/api/v1/events?limit=1")).body.events).toHaveLength(1);
      expect(await server.output()).toContain("full");
      expect(await says(world, 503, "the database has no room left")).toBe(true);

      await makeRoom();
      const tried = acked.length;
      acked.push(
        await until(async () => await emit(tried).catch(() => undefined), {
          about: "an emit after room was made",
          everyMs: 100,
        }),
      );
      await until(() => says(world, 200), { about: "both probes to say so", everyMs: 50 });
      await server.terminate();
      const store = await storeOf(home);
      try {
        expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
      } finally {
        await store.close();
      }
    },
    120_000,
  );
});
