import { effect, signal } from "@preact/signals";
import { isUtc } from "./format.ts";

/** What the reader prefers, kept in this browser. Nothing secret goes here. */
export type Theme = "system" | "light" | "dark";

const themes: readonly Theme[] = ["system", "light", "dark"];

function stored(name: string): string | null {
  try {
    return localStorage.getItem(`svc.${name}`);
  } catch {
    // The browser keeps nothing for this site.
    return null;
  }
}

export function store(name: string, value: string): void {
  try {
    localStorage.setItem(`svc.${name}`, value);
  } catch {
    // The same: the preference lasts as long as the page.
  }
}

export const theme = signal<Theme>(themes.find((one) => one === stored("theme")) ?? "system");

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  store("theme", theme.value);
});

export function nextTheme(): void {
  theme.value = themes[(themes.indexOf(theme.value) + 1) % themes.length]!;
}

isUtc.value = stored("zone") === "utc";

effect(() => store("zone", isUtc.value ? "utc" : "own"));

export function nextZone(): void {
  isUtc.value = !isUtc.value;
}

const recentMax = 20;

/** What was looked at last, newest first: the page and the id, each as in an address. */
export const recent = signal<readonly string[]>(
  (stored("recent") ?? "").split(" ").filter((one) => one !== ""),
);

export function noteRecent(page: string, id: string): void {
  const noted = `${page}/${encodeURIComponent(id)}`;
  recent.value = [noted, ...recent.value.filter((one) => one !== noted)].slice(0, recentMax);
  store("recent", recent.value.join(" "));
}
