import { signal } from "@preact/signals";

const numbers = new Intl.NumberFormat("en");

export const count = (value: number): string => numbers.format(value);

/** `1 key`, `2,000 keys`. */
export const counted = (number: number, one: string): string =>
  `${count(number)} ${one}${number === 1 ? "" : "s"}`;

/** `12 ms`, `3.4 s`, `2 m 05 s`, `3 h 20 m`, `4 d 2 h`. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1_000;
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const two = (value: number) => `${Math.floor(value)}`.padStart(2, "0");
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ${two((seconds % 3_600) / 60)} m`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3_600)} h`;
}

/** How long something lasted, by clocks that count milliseconds. */
export const lasted = (ms: number): string => (ms < 1 ? "<1 ms" : duration(ms));

/** `just now`, `12 s ago`, `3 m ago`, `5 h ago`, `2 d ago`; `in 3 m` of a time to come. */
export function ago(at: number, now: number): string {
  const seconds = Math.floor((now - at) / 1_000);
  // A clock that is a little behind the server's would show what just happened as a time to come.
  if (seconds <= -60) return `in ${roughly(-seconds)}`;
  return seconds < 2 ? "just now" : `${roughly(seconds)} ago`;
}

function roughly(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} m`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3_600)} h` : `${Math.floor(seconds / 86_400)} d`;
}

/** Whether times are shown in UTC instead of the browser's zone. */
export const isUtc = signal(false);

/** The zone that times are shown in. */
export const zoneName = (): string =>
  isUtc.value ? "UTC" : new Intl.DateTimeFormat().resolvedOptions().timeZone;

/** In the zone that the reader has chosen. */
const iso = (at: number): string =>
  new Date(isUtc.value ? at : at - new Date(at).getTimezoneOffset() * 60_000).toISOString();

/** `14:03:22.481`. */
export const clockTime = (at: number): string => iso(at).slice(11, 23);

/** `2026-11-22 14:03:22`. */
export const dateTime = (at: number): string => iso(at).slice(0, 19).replace("T", " ");

/** A text of an answer; empty for what is none. */
export const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

export const instantOf = (text: string | undefined): number | undefined => {
  if (!text) return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : at;
};

export function bytes(size: number): string {
  if (size < 1_024) return `${size} B`;
  if (size < 1_024 * 1_024) return `${(size / 1_024).toFixed(1)} KiB`;
  return `${(size / 1_024 / 1_024).toFixed(1)} MiB`;
}

/** Characters that turn the direction of text, end lines or show nothing: a name could pose as another. */
const unseen = /[\p{Cc}\p{Zl}\p{Zp}[\p{Cf}--\u200d]]/gv;

/** The text with characters that would not be seen written as `\u{202e}`. */
export const plain = (text: string): string =>
  text.replace(unseen, (one) => `\\u{${one.codePointAt(0)!.toString(16)}}`);

export const cut = (text: string, most: number): string =>
  text.length <= most ? text : `${text.slice(0, most)}…`;

/** JSON as people edit it. */
export const writeJson = (value: unknown): string => JSON.stringify(value, null, 2) ?? "null";

/** Values that are larger come by how they begin; one in full is read when somebody wants it. */
export const shownBytesMax = 16 * 1_024;

export interface CutView {
  bytes: number;
  begins: string;
}

/** By the field that would have the value, in the wire's spelling. */
export type Cuts = Readonly<Record<string, CutView>>;

export const cutsOf = (
  list: readonly { field: string; bytes: number; begins?: string }[] | undefined,
): Cuts =>
  Object.fromEntries((list ?? []).map(({ field, bytes, begins = "" }) => [field, { bytes, begins }]));
