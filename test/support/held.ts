import { closeSync, openSync, readSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { percentile } from "../bench/figures.ts";

/** How long this thread was ready to run and had no processor, in milliseconds; 0 where the kernel does not tell. */
function waitedOf(): () => number {
  try {
    const file = openSync(`/proc/self/task/${process.pid}/schedstat`, "r");
    const bytes = Buffer.alloc(128);
    process.once("exit", () => closeSync(file));
    return () => Number(bytes.toString("latin1", 0, readSync(file, bytes, 0, 128, 0)).split(" ", 2)[1]) / 1e6;
  } catch {
    return () => 0;
  }
}

const waited = waitedOf();

/** The longest time for which this process held its event loop while the work went on, in milliseconds. */
export async function longestHold(work: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let on = true;
  const watching = (async () => {
    while (on) {
      const [since, waitedBefore] = [performance.now(), waited()];
      await new Promise((done) => setImmediate(done));
      longest = Math.max(longest, performance.now() - since - (waited() - waitedBefore));
    }
  })();
  await work();
  on = false;
  await watching;
  return longest;
}

// DEBUG
import { appendFileSync as app } from "node:fs";

const dbg = process.env.HOLDS_LOG;
const statFile = dbg ? openSync(`/proc/self/task/${process.pid}/stat`, "r") : 0;
const schedFile = dbg ? openSync(`/proc/self/task/${process.pid}/schedstat`, "r") : 0;
const b1 = Buffer.alloc(1024);
const snap = () => {
  const st = b1.toString("latin1", 0, readSync(statFile, b1, 0, 1024, 0));
  const f = st.slice(st.lastIndexOf(")") + 2).split(" ");
  const sc = b1.toString("latin1", 0, readSync(schedFile, b1, 0, 1024, 0)).split(" ");
  const cpu = process.cpuUsage();
  const ru = process.resourceUsage();
  return {
    min: Number(f[7]),
    maj: Number(f[9]),
    blk: Number(f[39]),
    ran: Number(sc[0]) / 1e6,
    waited: Number(sc[1]) / 1e6,
    slices: Number(sc[2]),
    pu: cpu.user / 1e3,
    ps: cpu.system / 1e3,
    allmin: ru.minorPageFault,
    allmaj: ru.majorPageFault,
    vol: ru.voluntaryContextSwitches,
    invol: ru.involuntaryContextSwitches,
  };
};

export interface Held {
  p50: number;
  p99: number;
  max: number;
  /** How often a minute longer than `longMs`. */
  longPerMinute: number;
}

/**
 * How long this process holds its own event loop, a look every millisecond: how late a timer is, less the time for which
 * other processes had the processor. The answered function ends it, and tells milliseconds.
 */
export function watchHeld(longMs: number): () => Promise<Held> {
  const held: number[] = [];
  const startedAt = performance.now();
  let on = true;
  const watching = (async () => {
    while (on) {
      const sn = dbg ? snap() : undefined;
      const waitedBefore = waited();
      const due = performance.now() + 1;
      await pause(1);
      if (sn && performance.now() - due > 8) {
        const late = performance.now() - due;
        const after = snap() as Record<string, number>;
        const diff = Object.fromEntries(
          Object.entries(sn).map(([k, v]) => [k, Math.round((after[k]! - v) * 100) / 100]),
        );
        app(
          dbg!,
          `${new Date().toISOString()} late ${late.toFixed(1)} ${JSON.stringify(diff)} rss ${(process.memoryUsage.rss() / 1e6).toFixed(0)}\n`,
        );
      }
      held.push(Math.max(0, performance.now() - due - (waited() - waitedBefore)));
    }
  })();
  return async () => {
    on = false;
    await watching;
    const minutes = (performance.now() - startedAt) / 60_000;
    const sorted = held.sort((one, other) => one - other);
    const round = (value: number) => Math.round(value * 100) / 100;
    return {
      p50: round(percentile(sorted, 0.5)),
      p99: round(percentile(sorted, 0.99)),
      max: round(sorted.at(-1) ?? 0),
      longPerMinute: round(sorted.filter((ms) => ms > longMs).length / minutes),
    };
  };
}
