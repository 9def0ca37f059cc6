import type { Browser } from "playwright-core";
import { findProgram } from "./process.ts";

const flags = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // /dev/shm is small in containers; without this a page with many pictures crashes there.
  "--disable-dev-shm-usage",
  // Fewer processes, which have less to tell each other.
  "--in-process-gpu",
  "--enable-features=NetworkServiceInProcess2",
];

/** The shell draws no window of its own: a page costs a third of the processor time that it takes in the whole browser. */
export function findChrome(): string {
  return findProgram(
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"],
    "chromium-headless-shell",
  );
}

const closedWithinMs = 10_000;

interface ChromeOptions {
  args?: readonly string[];
  /** A browser that is not done with `work` by then hangs. */
  patienceMs?: number;
}

const browsersMax = 3;
const hung = Symbol("hung");

/**
 * `work` with a headless browser. Chromium hangs now and then on a busy machine, whatever a page does: `work` then
 * begins anew with another browser, so it must be able to. Its own errors are thrown at once.
 */
export async function inChrome<Result>(
  work: (browser: Browser) => Promise<Result>,
  { args = [], patienceMs = 90_000 }: ChromeOptions = {},
): Promise<Result> {
  const { chromium } = await import("playwright-core");
  for (let browsers = 1; ; browsers++) {
    const launched = chromium.launch({
      executablePath: findChrome(),
      headless: true,
      args: [...flags, ...args],
      timeout: patienceMs,
    });
    const done = launched.then(work);
    try {
      const result = await Promise.race([done, Bun.sleep(patienceMs).then((): typeof hung => hung)]);
      if (result !== hung) return result;
    } finally {
      done.catch(() => {});
      const closed = launched.then((browser) => browser.close());
      await Promise.race([closed.catch(() => {}), Bun.sleep(closedWithinMs)]);
    }
    if (browsers === browsersMax) throw new Error(`${browsers} browsers one after the other did not answer`);
    console.error(`a browser did not answer within ${patienceMs} ms: another takes its place`);
  }
}
