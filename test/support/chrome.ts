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
];

export function findChrome(): string {
  return findProgram(["chromium", "chromium-browser", "google-chrome"], "chromium");
}

/** A headless browser; the caller closes it. */
export async function startChrome(more: readonly string[] = []): Promise<Browser> {
  const { chromium } = await import("playwright-core");
  return chromium.launch({
    executablePath: findChrome(),
    headless: true,
    args: [...flags, ...more],
    timeout: 30_000,
  });
}
