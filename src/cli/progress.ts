import type { Io } from "./io.ts";
import { toldEveryMs } from "./limits.ts";

const barChars = 20;

/** `[#####---------------]  25 %  10 of 40 lines` */
export function barOf(done: number, total: number, unit: string): string {
  const share = total > 0 ? Math.min(1, done / total) : 1;
  const filled = Math.floor(share * barChars);
  const bar = "#".repeat(filled) + "-".repeat(barChars - filled);
  return `[${bar}] ${String(Math.floor(share * 100)).padStart(3)} %  ${done} of ${total} ${unit}`;
}

/** Says on a terminal how long the work has taken, from its second second on. */
export async function whileWaiting<Answer>(io: Io, work: Promise<Answer>): Promise<Answer> {
  const startedAt = io.clock.elapsed();
  let cancel = () => {};
  const tick = () => {
    cancel = io.clock.after(toldEveryMs, () => {
      io.status(`waiting ${Math.round((io.clock.elapsed() - startedAt) / 1_000)} s`);
      tick();
    });
  };
  tick();
  try {
    return await work;
  } finally {
    cancel();
    io.status("");
  }
}

/** Numbers of 64 bits come as text, and zeros not at all. */
type Count = string | number | undefined;

const barOfCounts = (done: Count = 0, total: Count = 0, unit: string): string | undefined =>
  Number(total) > 0 ? barOf(Math.max(0, Number(done)), Number(total), unit) : undefined;

/** How far a rebuild of a projection is; undefined before it knows. */
export function rebuildBar(answer: unknown): string | undefined {
  const { job } = answer as { job?: { eventsProcessed?: Count; totalEvents?: Count } };
  return barOfCounts(job?.eventsProcessed, job?.totalEvents, "events");
}

interface RepairShown {
  phase?: string;
  counts?: Record<string, Count>;
  position?: Count;
  fromPosition?: Count;
  toPosition?: Count;
}

/** Progress of a repair: a replay by its window of the log, others by their runs once all are selected. */
export function repairBar(answer: unknown): string | undefined {
  const { phase, counts = {}, position = 0, fromPosition = 0, toPosition = 0 } = answer as RepairShown;
  if (Number(toPosition) > 0) {
    const before = Number(fromPosition) - 1;
    return barOfCounts(Number(position) - before, Number(toPosition) - before, "events");
  }
  if (phase === "select") return undefined;
  const { pending = 0, done = 0, over = 0, refused = 0, failed = 0, undone = 0 } = counts;
  const begun = [done, over, refused, failed, undone].reduce<number>((sum, one) => sum + Number(one), 0);
  return barOfCounts(begun, begun + Number(pending), "runs");
}
