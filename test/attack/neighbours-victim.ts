import { systemClock } from "../../src/kit/clock.ts";
import { percentile } from "../bench/figures.ts";
import { onProcessor } from "../support/held.ts";
import { pullWorker } from "../support/pull-worker.ts";
import type { TestServer } from "../support/server.ts";

/** What a victim met while it worked. */
export interface Met {
  calls: number;
  /** Of its calls, what the server's thread computed between question and answer, in milliseconds. */
  p99: number;
  /** The longest that the thread computed without giving the loop back. */
  heldMs: number;
  /** Memory that came on top and that a collection did not give back, in megabytes. */
  grownMb: number;
  /** The same with what was only not collected yet. */
  peakMb: number;
  /** Slots of its schedule that were due, and that ran. */
  slots: { due: number; ran: number };
  refused: string[];
}

const pause = systemClock().sleep;
const tick = "victim-tick";
const rssMb = () => process.memoryUsage().rss / 1024 / 1024;
/** So much growth is collected before it counts, at most this often. */
const collectedFromMb = 100;
const collectedEveryMs = 1_000;

export interface Victim {
  work(ms: number): Promise<Met>;
}

/**
 * Emits, works and reads in the thread of the server. Judged is what that thread computes: a processor that others have, or a disk
 * that sleeps, is nobody's attack.
 */
export async function openVictim(server: TestServer): Promise<Victim> {
  const worker = pullWorker(server, "victim");
  await server.rpc("SvcService", "RegisterFunction", {
    ...{ id: "victim", name: "victim", triggers: [{ event: "victim.event" }] },
  });
  await server.rpc("SvcService", "RegisterFunction", {
    ...{ id: tick, name: tick, triggers: [{ cron: "* * * * * *" }] },
  });
  await worker.register("victim", tick);

  async function work(ms: number): Promise<Met> {
    const times: number[] = [];
    const refused: string[] = [];
    const began = performance.now();
    const before = rssMb();
    let peak = before;
    let most = before;
    let collectedAt = Number.NEGATIVE_INFINITY;
    let collectingMs = 0;
    let heldMs = 0;
    let ran = 0;
    let on = true;
    /** Much growth is collected before it counts: the runtime lets garbage grow as it pleases, and nobody holds that. */
    const look = (everyMs: number) => {
      const rss = rssMb();
      peak = Math.max(peak, rss);
      if (rss <= most) return;
      if (rss - before < collectedFromMb) most = rss;
      else if (performance.now() - collectedAt >= everyMs) {
        const computed = onProcessor();
        Bun.gc(true);
        collectingMs += onProcessor() - computed;
        collectedAt = performance.now();
        most = Math.max(most, rssMb());
      }
    };
    const watching = (async () => {
      while (on) {
        const computed = onProcessor();
        await pause(1);
        heldMs = Math.max(heldMs, onProcessor() - computed);
        look(collectedEveryMs);
      }
    })();
    const call = async (what: string, ask: () => Promise<{ status: number }>) => {
      const computed = onProcessor() - collectingMs;
      const { status } = await ask();
      times.push(onProcessor() - collectingMs - computed);
      if (status >= 400) refused.push(`${what} ${status}`);
    };
    while (performance.now() - began < ms) {
      await call("emit", () => server.rpc("SvcService", "Emit", { event: "victim.event", data: { n: 1 } }));
      for (const job of await worker.poll(10)) {
        if (job.function_id === tick) ran++;
        await call("report", () => worker.complete(job));
      }
      await call("list", () => server.api("/api/v1/events?name=victim&limit=20"));
      await call("ready", () => server.api("/ready", { key: null }));
      await pause(5);
    }
    on = false;
    await watching;
    look(0);
    const sorted = times.sort((one, other) => one - other);
    return {
      calls: times.length,
      p99: percentile(sorted, 0.99),
      heldMs,
      grownMb: most - before,
      peakMb: peak - before,
      slots: { due: Math.max(0, Math.floor((performance.now() - began) / 1_000) - 1), ran },
      refused,
    };
  }
  // What runs for the first time is slow without any neighbour.
  await work(500);
  return { work };
}
