import { afterEach, describe, expect, test } from "bun:test";
import { makeDisk, mayMount } from "../support/disk.ts";
import { isNight } from "../support/night.ts";
import { isSoak, seed } from "../support/soak.ts";
import { until } from "../support/until.ts";
import { chanceOf } from "./faults.ts";
import { startLibsqlWorld } from "./libsql-world.ts";

const leaseMs = 1_500;
const settings = { leaseMs, drainNoticeMs: 0, drainMs: 2_000 };

// What stays of the engine's promises when the one node over a database file meets the faults that one node can meet.
describe("the engine on libSQL under load", () => {
  const undo: (() => unknown)[] = [];
  afterEach(async () => {
    for (const step of undo.splice(0).reverse()) await step();
  }, 120_000);

  async function world(folder?: string) {
    const made = await startLibsqlWorld(settings, folder);
    undo.push(made.stop);
    return made;
  }

  /** A busy machine gets through less in the same time. */
  const enough = (made: Awaited<ReturnType<typeof world>>) =>
    until(() => made.people.acked.length > 20, { about: "acknowledged events", deadlineMs: 60_000 });

  test("survives kill -9 of server and workers, and a server that stands still past its leases", async () => {
    const made = await world();
    await made.load(chanceOf(seed), async () => {
      for (let times = 0; times < 3; times++) {
        await Bun.sleep(1_500);
        await made.server.kill9();
        await Bun.sleep(300);
        await made.server.restart();
      }
      const [worker] = made.workers.splice(0, 1);
      await worker!.kill9();
      await made.addWorker();
      process.kill(made.server.pid(), "SIGSTOP");
      await Bun.sleep(leaseMs + 500);
      process.kill(made.server.pid(), "SIGCONT");
      await Bun.sleep(1_000);
      await enough(made);
    });
    expect(await made.check()).toEqual([]);
    expect(made.people.acked.length).toBeGreaterThan(20);
  }, 240_000);

  test.if(mayMount && (isNight || isSoak))(
    "goes on after a power cut from what had reached the disk",
    async () => {
      const before = await makeDisk({ megabytes: 320 });
      undo.push(before.remove);
      const made = await world(before.folder);
      await made.load(chanceOf(seed), async () => {
        await Bun.sleep(4_000);
        process.kill(made.server.pid(), "SIGSTOP");
        const after = await before.cut();
        // The last to go: the server of after the cut lives on it until the world ends.
        undo.splice(1, 0, after.remove);
        await made.server.kill9();
        await made.moveTo(after.folder);
        await Bun.sleep(2_000);
        await enough(made);
      });
      expect(await made.check()).toEqual([]);
      expect(made.people.acked.length).toBeGreaterThan(20);
    },
    240_000,
  );

  test.skipIf(!mayMount)(
    "stands still while its disk is full, and goes on when there is room",
    async () => {
      const disk = await makeDisk({ megabytes: 48 });
      undo.push(disk.remove);
      const made = await world(disk.folder);
      await made.load(chanceOf(seed), async () => {
        await Bun.sleep(2_000);
        const makeRoom = disk.fill();
        const emit = () =>
          made.server.rpc("SvcService", "Emit", { event: "big.one", data: { text: "x".repeat(60_000) } });
        await until(async () => (await emit()).status === 503, { about: "a full disk", deadlineMs: 60_000 });
        await Bun.sleep(3_000);
        await makeRoom();
        await until(async () => (await emit()).status === 200, { about: "room again", deadlineMs: 60_000 });
        await Bun.sleep(1_000);
      });
      expect(await made.check()).toEqual([]);
      expect(made.people.acked.length).toBeGreaterThan(10);
    },
    240_000,
  );
});
