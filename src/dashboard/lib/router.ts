import { computed, signal } from "@preact/signals";

export const base = "/dashboard";

/** What the address says: `/dashboard/{org}/{environment}/{page}/{rest…}?{query}`. */
export type PageAddress = ReturnType<typeof addressOf>;

/** Stands in the address where no environment is looked at, as in the platform's own pages. */
const noEnvironment = "-";

export function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function addressOf(pathname: string, search: string) {
  const parts = pathname.slice(base.length).split("/").filter(Boolean).map(decoded);
  const [org = "", named = "", page = "", ...rest] = parts;
  const environment = named === noEnvironment ? "" : named;
  return { org, environment, page, rest, query: new URLSearchParams(search) };
}

const read = () => addressOf(location.pathname, location.search);

export const address = signal<PageAddress>(read());
/** Changes when another page is shown, not when a page's own filters change. */
export const pageKey = computed(() => {
  const { org, environment, page, rest } = address.value;
  return [org, environment, page, ...rest].join("\n");
});

/** `{ a: "1", b: "" }` as `?a=1`; nothing for nothing. */
export function queryOf(query: Filters): string {
  const set = Object.entries(query).filter((pair): pair is [string, string] => Boolean(pair[1]));
  return set.length === 0 ? "" : `?${new URLSearchParams(set)}`;
}

export type Filters = Record<string, string | undefined>;

/** `hrefOf(["runs", id], { step })`: within the org and environment that are shown. */
export function hrefOf(parts: readonly string[], query: Filters = {}): string {
  const { org, environment } = address.value;
  return `${placeOf(org, environment, parts)}${queryOf(query)}`;
}

/** An address elsewhere: of another org or environment. */
export const placeOf = (org: string, environment: string, parts: readonly string[]): string =>
  `${base}/${[org, environment || noEnvironment, ...parts].map(encodeURIComponent).join("/")}`;

export function go(href: string, { replaces = false } = {}): void {
  if (replaces) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  address.value = read();
}

/** Changes filters in the address; empty ones are left out. */
export function setQuery(changes: Filters, options: { replaces?: boolean } = { replaces: true }): void {
  const query = { ...Object.fromEntries(address.value.query), ...changes };
  go(`${location.pathname}${queryOf(query)}`, options);
}

/** Follows links within the dashboard without loading the page anew. */
export function followLinks(): void {
  addEventListener("popstate", () => {
    address.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const anchor = (event.target as Element | null)?.closest?.("a");
    if (!anchor || anchor.target || anchor.origin !== location.origin) return;
    if (!anchor.pathname.startsWith(`${base}/`)) return;
    event.preventDefault();
    go(anchor.pathname + anchor.search);
  });
}
