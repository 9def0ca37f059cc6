import { afterEach, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { mayMount } from "../support/disk.ts";
import { engines } from "../support/server.ts";
import { until } from "../support/until.ts";
import { holdsWithin } from "../support/within.ts";
import { type SmallDiskWorld, says, startOnSmallDisk } from "./small-disk.ts";

// What is promised in seconds: the lane `timing` runs it alone. Nobody emits, so that no write is refused.

let world: SmallDiskWorld | undefined;
afterEach(async () => {
  await world?.stop();
  world = undefined;
}, 120_000);

const noRoom = "the database has no room left";

describe.each(engines)("a full disk under %s", (engine) => {
  test.skipIf(!mayMount)(
    "is told within two seconds by a node that nobody writes to, and within one that there is room again",
    async () => {
      const made = await startOnSmallDisk(engine);
      world = made;
      await holdsWithin(1_000, () => says(made, 200), "a database in order");
      // Twice: what the first look could not take must not be in the way of the second.
      for (let times = 0; times < 2; times++) {
        const makeRoom = made.disk.fill();
        await holdsWithin(2_000, () => says(made, 503, noRoom), "a full disk to be noticed");
        // It stays so: none of the looks meanwhile found room, or kept any.
        await Bun.sleep(1_500);
        expect(await says(made, 503, noRoom)).toBe(true);
        await makeRoom();
        await holdsWithin(1_000, () => says(made, 200), "room to be noticed");
      }
    },
    120_000,
  );
});

test.skipIf(!mayMount)(
  "a full disk for PostgreSQL's log ends that server: nodes say so within two seconds, and go on within one when it is back",
  async () => {
    const made = await startOnSmallDisk("postgres", "log");
    world = made;
    const postgres = made.postgres!;
    await holdsWithin(1_000, () => says(made, 200), "a database in order");
    const makeRoom = made.disk.fill();
    await fillLog(postgres.url);
    await holdsWithin(2_000, async () => (await made.probed()).statuses.join() === "503,503", "its end");
    const { reasons } = await made.probed();
    expect(reasons[0]).toStartWith("the database");
    // Beside that, at most the loops that have failed for long before the end.
    expect(reasons.filter((reason) => !/^the database|^loop \S+ fails: /.test(reason))).toEqual([]);
    // Neither can it recover without room for its log; what the operator does comes after that.
    await until(() => !existsSync(`/proc/${postgres.pid()}`), { about: "its last try", deadlineMs: 60_000 });
    await makeRoom();
    await postgres.restart();
    await holdsWithin(1_000, () => says(made, 200), "its return to be noticed");
  },
  120_000,
);

/** Asks for one file of the log after the other, until the server has no room for the next. */
async function fillLog(url: string): Promise<void> {
  const sql = new Bun.SQL(url, { max: 1 });
  try {
    for (;;) {
      await sql.unsafe("SELECT pg_logical_emit_message(false, 'fill', '')");
      await sql.unsafe("SELECT pg_switch_wal()");
    }
  } catch {
    // It ended itself.
  } finally {
    await sql.close().catch(() => {});
  }
}
