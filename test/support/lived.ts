import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openPostgres } from "../../src/store/postgres.ts";
import { onProcessor } from "./held.ts";

/**
 * Time as a machine that is never held up would count it: a bound on it is a claim about the product, and no pause of this
 * process or of the database that it asks makes it fail. Milliseconds since its beginning.
 */
export interface LivedTime {
  now(): number;
  stop(): Promise<void>;
}

/** A look takes less than this on a machine that gets on; of a longer one only so much counts, or what this thread computed. */
const lookMsMax = 20;
const everyMs = 5;

/** With a database's URL each look is also a commit there, which waits for its disk as those of the product do. */
export async function livedTime(databaseUrl?: string): Promise<LivedTime> {
  const store =
    databaseUrl === undefined
      ? undefined
      : await openPostgres({
          ...{ url: databaseUrl, clock: systemClock(), log: silentLog },
          ...{ poolSize: 1, hotPoolSize: 1, applicationName: "svc-test" },
        });
  // Written to the log of the database and to no table.
  const look = () => store?.one(sql`SELECT pg_logical_emit_message(true, 'lived', '')::text AS at`);
  let counted = 0;
  let since = performance.now();
  let computedBefore = onProcessor();
  let on = true;
  const current = () => {
    const passed = performance.now() - since;
    return passed <= lookMsMax ? passed : Math.max(lookMsMax, onProcessor() - computedBefore);
  };
  const looking = (async () => {
    while (on) {
      await Promise.all([Bun.sleep(everyMs), look()?.catch(() => {})]);
      counted += current();
      since = performance.now();
      computedBefore = onProcessor();
    }
  })();
  return {
    now: () => counted + current(),
    async stop() {
      on = false;
      await looking;
      await store?.close();
    },
  };
}

const pauseMsMax = 400;
const observationsMax = 8;

/** What `observe` finds. What it finds wrong while the machine paused says nothing, and is looked at again. */
export async function whileLived<Found>(
  databaseUrl: string | undefined,
  observe: () => Promise<Found>,
  isRight: (found: Found) => boolean,
): Promise<Found> {
  const lived = await livedTime(databaseUrl);
  try {
    for (let observations = 1; ; observations++) {
      const began = { at: performance.now(), lived: lived.now() };
      const found = await observe();
      const pausedMs = performance.now() - began.at - (lived.now() - began.lived);
      if (isRight(found) || pausedMs <= pauseMsMax || observations === observationsMax) return found;
    }
  } finally {
    await lived.stop();
  }
}
