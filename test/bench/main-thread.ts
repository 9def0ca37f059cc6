import type { Browser, Page } from "playwright-core";
import { percentile } from "./figures.ts";

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  /** Microseconds, as `dur`; `tdur` is what the thread computed meanwhile. */
  ts: number;
  dur?: number;
  tdur?: number;
  args?: { name?: string };
}

/** Of each 60th of a second in which a page had work: how long its main thread was at it. */
export interface MainThread {
  /** By the clock, which counts what other processes took, too. */
  p95Ms: number;
  /** What the thread itself computed. */
  computedP95Ms: number;
  longestMs: number;
  /** Of a core. */
  share: number;
}

const frameUs = 1_000_000 / 60;
const taskName = /RunTask$/;

/** Tasks by the frame in which they begin. */
function frames(tasks: readonly TraceEvent[], lasts: (task: TraceEvent) => number): number[] {
  const spent = new Map<number, number>();
  for (const task of tasks) {
    const frame = Math.floor(task.ts / frameUs);
    spent.set(frame, (spent.get(frame) ?? 0) + lasts(task) / 1_000);
  }
  return [...spent.values()].sort((one, other) => one - other);
}

/** Traces what the page does during `work`. */
export async function traced(browser: Browser, page: Page, work: () => Promise<void>): Promise<MainThread> {
  await browser.startTracing(page, {
    categories: ["toplevel", "disabled-by-default-devtools.timeline", "__metadata"],
  });
  await work();
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as {
    traceEvents: TraceEvent[];
  };
  const mains = traceEvents.filter(
    ({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain",
  );
  const byMain = mains.map(({ pid, tid }) =>
    traceEvents.filter((event) => event.pid === pid && event.tid === tid && taskName.test(event.name)),
  );
  const busy = (tasks: readonly TraceEvent[]) => tasks.reduce((sum, { tdur = 0 }) => sum + tdur, 0);
  // The page's own is the busiest: the others belong to no page or to one that stands still.
  const [tasks = []] = byMain.sort((one, other) => busy(other) - busy(one));
  if (tasks.length === 0) throw new Error("the trace has no task of the page");
  const outer = tasks.filter(({ name }) => name === tasks[0]!.name);
  const byClock = frames(outer, ({ dur = 0 }) => dur);
  const computed = frames(outer, ({ tdur = 0 }) => tdur);
  const spanUs = Math.max(...outer.map(({ ts }) => ts)) - Math.min(...outer.map(({ ts }) => ts));
  return {
    p95Ms: percentile(byClock, 0.95),
    computedP95Ms: percentile(computed, 0.95),
    longestMs: Math.max(...outer.map(({ dur = 0 }) => dur)) / 1_000,
    share: busy(outer) / spanUs,
  };
}

/** Megabytes that the page's scripts hold once what is garbage is gone. */
export async function heapMb(page: Page): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  await session.detach();
  return usedSize / 1_000_000;
}
