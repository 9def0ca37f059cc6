import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { clock, emitUntilAcked, storeOf } from "../cluster/load.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type Disk, makeDisk, mayMount } from "../support/disk.ts";
import { type Home, makeHomeAt, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.skipIf(!mayMount)("a disk that runs full under libSQL", () => {
  let disk: Disk;
  let home: Home;
  let server: SpawnedServer;

  beforeAll(async () => {
    disk = await makeDisk({ megabytes: 24 });
    home = await makeHomeAt(undefined, disk.folder);
    server = await spawnServer({ engine: "libsql", home });
  }, 90_000);
  afterAll(async () => {
    await server?.stop();
    await disk?.remove();
    await home?.remove();
  }, 60_000);

  test("refuses what it cannot keep, says why, goes on when there is room, and lost nothing", async () => {
    const tenant = { environmentId: "env_default", key: server.adminKey };
    const acked: AckedEmit[] = [];
    const emit = async (number: number) => {
      const emission = {
        event: "big.one",
        data: { number, text: "x".repeat(20_000) },
        idempotencyKey: `k-${number}`,
      };
      return emitUntilAcked(emission, { url: () => server.url, tenant, triesMax: 1 });
    };
    await Bun.write(join(disk.folder, "ballast"), new Uint8Array(8 * 1024 * 1024));
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
    const ready = async () => (await server.api("/ready", { key: null })).body;
    const noRoom = { status: "not_ready", issues: ["the database has no room left"] };
    expect(await ready()).toEqual(noRoom);

    await rm(join(disk.folder, "ballast"));
    const tried = acked.length;
    acked.push(
      await until(async () => await emit(tried).catch(() => undefined), {
        about: "an emit after room was made",
        everyMs: 100,
      }),
    );
    await until(async () => (await ready()).status === "ready", { about: "/ready to say so", everyMs: 50 });
    await server.terminate();
    const store = await storeOf(home);
    try {
      expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
    } finally {
      await store.close();
    }
  }, 120_000);
});
