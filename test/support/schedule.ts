import type { EngineName } from "./engines.ts";
import type { LaneName, Share } from "./lanes.ts";
import recorded from "./times.json" with { type: "json" };

// In which order and beside what the processes of `bun test` run: by what each file took the last time.

/** Seconds that a share took and computed, its servers included, by `keyOf`. */
export type Times = Record<string, readonly [seconds: number, computed: number]>;

/** What one process runs: files of one lane with the same engines. */
export interface Batch {
  lane: LaneName;
  engine: EngineName | undefined;
  files: string[];
  seconds: number;
  /** Processors that it keeps busy, on average. */
  load: number;
}

/** A share that takes longer has a process of its own: a crash costs no other, and none waits for it. */
const longSeconds = 60;
/** A process loads some 1,300 modules before its first test, so that short files share one. */
const sharedSeconds = 180;
const filesMax = 64;
const unknown = [1, 0.6] as const;
/** What a process asks of the machine at least: it loads its modules. Those of several nodes end leases that are not renewed in time: one at a time on two cores. */
const loadMin = 0.25;
const loadMinOfNodes = 1.15;
/** More of it computes than that, but something else shall run beside it. */
const loadMax = 1.5;
/** Times are taken beside other processes: alone each would have computed as much in less time. */
const crowding = 1.1;
/** What is told of each is an average: more are begun than would fill the processors. */
const fullness = 1.1;

export const keyOf = ({ lane, engine, file }: Share): string => [lane, engine ?? "-", file].join(" ");

/** Those that would not fit beside others come first, the longest first: last they would run one by one. */
export function batchesOf(shares: readonly Share[], times: Times = recorded as unknown as Times): Batch[] {
  const batches: Batch[] = [];
  for (const own of Map.groupBy(shares, ({ lane, engine }) => `${lane} ${engine}`).values()) {
    const timed = own
      .map((share) => ({ share, took: times[keyOf(share)] ?? unknown }))
      .sort((one, other) => other.took[0] - one.took[0]);
    let open: (Batch & { computed: number }) | undefined;
    for (const { share, took } of timed) {
      const [seconds, computed] = took;
      if (open && (open.seconds + seconds > sharedSeconds || open.files.length === filesMax))
        open = undefined;
      const { lane, engine, file } = share;
      const batch = open ?? { lane, engine, files: [], seconds: 0, computed: 0, load: 0 };
      if (!open) batches.push(batch);
      batch.files.push(file);
      batch.seconds += seconds;
      batch.computed += computed;
      const least = lane === "cluster" || lane === "fault" ? loadMinOfNodes : loadMin;
      batch.load = Math.min(loadMax, Math.max(least, (crowding * batch.computed) / batch.seconds));
      open = seconds > longSeconds ? undefined : batch;
    }
  }
  const isHeavy = ({ load }: Batch) => Number(load >= loadMinOfNodes);
  return batches.sort((one, other) => isHeavy(other) - isHeavy(one) || other.seconds - one.seconds);
}

/**
 * Runs the batches, the longest first, as long as the processors have room: those that wait for a clock or a server leave
 * it to those that compute. A batch that is alone has no other beside it.
 */
export async function schedule(
  batches: readonly Batch[],
  {
    cores,
    run,
    isAlone,
  }: { cores: number; run(batch: Batch): Promise<void>; isAlone(batch: Batch): boolean },
): Promise<void> {
  const waiting = batches.filter((batch) => !isAlone(batch));
  const running = new Set<Promise<void>>();
  let busy = 0;
  while (waiting.length > 0 || running.size > 0) {
    const at = waiting.findIndex(({ load }) => running.size === 0 || busy + load <= cores * fullness);
    const [batch] = at === -1 ? [] : waiting.splice(at, 1);
    if (!batch) {
      await Promise.race(running);
      continue;
    }
    busy += batch.load;
    const turn: Promise<void> = run(batch).finally(() => {
      busy -= batch.load;
      running.delete(turn);
    });
    running.add(turn);
  }
  for (const batch of batches.filter(isAlone)) await run(batch);
}
