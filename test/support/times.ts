import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Times } from "./schedule.ts";

// What files of tests took: each run of test:all or test:night keeps it, `bun run refresh` writes it down, schedule.ts reads it.
// Nothing here imports a package: run-all.ts reads it before any is installed.

/** A share below this is not written down: its place in the order matters to no run. */
const toldSeconds = 1.5;
const keptIn = (root: string) => join(root, ".tmp/times.json");
const recordedIn = (root: string) => join(root, "test/support/times.json");

export const keepTimes = async (root: string, times: Times): Promise<unknown> =>
  Bun.write(keptIn(root), JSON.stringify(times));

/** Writes down what the last run of this checkout measured, and what stood there of files that it left out. */
export async function recordTimes(root: string): Promise<void> {
  const measured: Times = existsSync(keptIn(root)) ? await Bun.file(keptIn(root)).json() : {};
  const before: Times = await Bun.file(recordedIn(root)).json();
  // Of a file that has moved to another lane, what the other lane took is no more.
  const shareOf = (key: string) => key.slice(key.indexOf(" "));
  const known = new Set(Object.keys(measured).map(shareOf));
  const left = Object.entries(before).filter(([key]) => !known.has(shareOf(key)));
  const rows = [...left, ...Object.entries(measured)]
    .filter(([key, [seconds]]) => seconds >= toldSeconds && existsSync(join(root, key.split(" ")[2]!)))
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(
      ([key, took]) => `  ${JSON.stringify(key)}: [${took.map((one) => Number(one.toFixed(1))).join(", ")}]`,
    );
  await Bun.write(recordedIn(root), `{\n${rows.join(",\n")}\n}\n`);
}
