import type { Page } from "playwright-core";
import { everyWay, fits } from "../support/dashboard-writes.ts";

const ways = await everyWay();
const granted = new Set<string>();

/** Remembers each operation that writes, as the server grants it to the page. */
export function noteWrites(page: Page): void {
  page.on("response", (response) => {
    if (!response.ok()) return;
    const { pathname } = new URL(response.url());
    const way = ways.find((one) => one.method === response.request().method() && fits(pathname, one));
    if (way && !way.reads) granted.add(way.name);
  });
}

/** Those that no page of this file was granted yet; the next half begins anew. */
export function notGranted(names: readonly string[]): string[] {
  const missing = names.filter((name) => !granted.has(name));
  granted.clear();
  return missing;
}
