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
