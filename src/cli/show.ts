import { shownText } from "../kit/log-lines.ts";
import { pauseWords } from "../sdk/wire/pause-words.ts";
import type { Io } from "./io.ts";

/** As people chose it by `--json` and `--jsonl`. */
export type OutputForm = "people" | "json" | "jsonl";

export type Paint = ReturnType<typeof paintOf>;

const codes = { strong: 1, dim: 2, good: 32, bad: 31, busy: 33 } as const;
const escapeText = "\u001b[";

/** Colours on a terminal that has them; elsewhere the text as it is. */
export function paintOf({ isTerminal, environment }: Pick<Io, "isTerminal" | "environment">) {
  const hasColours = isTerminal && !environment.NO_COLOR && environment.TERM !== "dumb";
  const by = (code: number) => (text: string) =>
    hasColours ? `${escapeText}${code}m${text}${escapeText}0m` : text;
  return {
    strong: by(codes.strong),
    dim: by(codes.dim),
    good: by(codes.good),
    bad: by(codes.bad),
    busy: by(codes.busy),
  };
}

/** Clears the screen, for lists that redraw themselves. */
export const clearScreen = `${escapeText}H${escapeText}2J`;

/** The only codes that commands write; the pieces between them stand at even places of a split. */
const ownCodes = /(\u001b\[(?:H\u001b\[2J|(?:[012]|3[123])m))/;

const instant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;
const enumWord =
  /^(?:RUN_STATUS|STEP_STATUS|FUNCTION_STATUS|STEP_TYPE|EXECUTION_MODE|ACK_MODE|BACKPRESSURE_MODE|CONSUMER_GROUP_STATUS)_([A-Z_]+)$/;

/** Local time to the second, as in `2026-01-31 14:02:59`. */
export function localTime(text: string): string {
  const at = new Date(text);
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** A value as one line for people. */
export function cellOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") {
    if (instant.test(value)) return localTime(value);
    const word = enumWord.exec(value)?.[1];
    return word === undefined ? shownText(value).replaceAll("\n", "\u21b5") : word.toLowerCase();
  }
  return typeof value === "object" ? shownText(JSON.stringify(value)) : String(value);
}

const goodWords = new Set(["completed", "active", "healthy", "ready", "ok", "delivered", "succeeded"]);
const badWords = new Set([
  "failed",
  "dead",
  "error",
  "unhealthy",
  "open",
  "timed_out",
  "discarded",
  "expired",
]);
const busyWords = new Set([
  "running",
  "waiting",
  "sleeping",
  "pending",
  "paused",
  "retrying",
  "waiting_for_capacity",
  ...Object.values(pauseWords),
]);

function coloured(text: string, shown: string, paint: Paint): string {
  if (goodWords.has(text)) return paint.good(shown);
  if (badWords.has(text)) return paint.bad(shown);
  return busyWords.has(text) ? paint.busy(shown) : shown;
}

type TableRow = Readonly<Record<string, unknown>>;

/** What callers wrote, and may copy: it stays JSON. */
const payloads = new Set(["data", "input", "output", "state", "value", "metadata", "eventData", "error"]);

/** Words such as roles, which a line has room for. */
const isWords = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((one) => typeof one === "string");

const lineOf = (name: string, value: unknown): string =>
  isWords(value) && !payloads.has(name) ? value.map(cellOf).join(", ") : cellOf(value);

const scalar = (value: unknown) => typeof value !== "object" || value === null;
const columnsShown = 7;

/** The columns where a command chooses none: fields of some row that are a value or words. */
function columnsOf(rows: readonly TableRow[]): string[] {
  const fits = (value: unknown) => scalar(value) || isWords(value);
  const names = new Set(rows.flatMap((row) => Object.keys(row).filter((name) => fits(row[name]))));
  return [...names].slice(0, columnsShown);
}

/** `error.message` of a row. */
function valueAt(row: TableRow, column: string): unknown {
  if (Object.hasOwn(row, column)) return row[column];
  let value: unknown = row;
  for (const name of column.split(".")) value = (value as TableRow | undefined | null)?.[name];
  return value;
}

const titleOf = (column: string): string =>
  column
    .split(".")[0]!
    .replaceAll(/([a-z])([A-Z])/g, "$1 $2")
    .replaceAll("_", " ")
    .toUpperCase();

const narrowest = 8;

/** Cuts the widest columns until a row fits the terminal; what is piped is never cut. */
function fitting(widths: number[], room: number): number[] {
  const cut = [...widths];
  while (cut.reduce((sum, width) => sum + width + 2, -2) > room) {
    const widest = Math.max(...cut);
    if (widest <= narrowest) break;
    cut[cut.indexOf(widest)] = widest - 1;
  }
  return cut;
}

export function tableOf(
  rows: readonly TableRow[],
  { columns = columnsOf(rows), io, paint }: { columns?: readonly string[] | undefined; io: Io; paint: Paint },
): string {
  if (rows.length === 0) return `${paint.dim("none")}\n`;
  const texts = rows.map((row) => columns.map((column) => lineOf(column, valueAt(row, column))));
  const titles = columns.map((column) => shownText(titleOf(column)));
  const wanted = titles.map((title, at) =>
    Math.max(title.length, ...texts.map((cells) => cells[at]!.length)),
  );
  const widths = io.isTerminal ? fitting(wanted, io.columns) : wanted;
  const line = (cells: readonly string[], show: (text: string, padded: string) => string) =>
    cells
      .map((text, at) => {
        const width = widths[at]!;
        const cut = text.length > width ? `${text.slice(0, width - 1)}\u2026` : text;
        return show(text, at === cells.length - 1 ? cut : cut.padEnd(width));
      })
      .join("  ")
      .trimEnd();
  const lines = texts.map((cells) => line(cells, (text, padded) => coloured(text, padded, paint)));
  return `${[line(titles, (_text, padded) => paint.dim(padded)), ...lines].join("\n")}\n`;
}

const isRow = (value: unknown): value is TableRow =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const shortJsonMax = 80;

/** One thing: a line a field, and the same below it; lists of things are tables of their scalar fields. */
export function detailsOf(value: TableRow, { io, paint }: { io: Io; paint: Paint }): string {
  const entries = Object.entries(value)
    .filter(([, one]) => one !== undefined && one !== null && one !== "")
    .map(([name, one]) => [shownText(name), one] as const);
  if (entries.length === 0) return `${paint.good("done")}\n`;
  const width = Math.max(...entries.map(([name]) => name.length));
  const indent = "\n".padEnd(width + 3);
  const inside = { ...io, columns: io.columns - width - 2 };
  const shownOf = (name: string, one: unknown): string => {
    const text = lineOf(name, one) || "none";
    if (scalar(one) || text.length < shortJsonMax) return coloured(text, text, paint);
    const isList = Array.isArray(one) && one.every((item) => isRow(item) && Object.values(item).some(scalar));
    if (isList) return tableOf(one, { io: inside, paint }).trimEnd();
    if (isRow(one) && !payloads.has(name)) return detailsOf(one, { io: inside, paint }).trimEnd();
    return shownText(JSON.stringify(one, null, 2));
  };
  const lines = entries.map(
    ([name, one]) => `${paint.dim(name.padEnd(width))}  ${shownOf(name, one).replaceAll("\n", indent)}`,
  );
  return `${lines.join("\n")}\n`;
}

/** A thing is no list, whatever list is one of its fields: a run has attributes. */
const isThing = (answer: object): boolean => "id" in answer || "name" in answer;

/** The list in an answer: the answer itself, or its only field that is an array. */
export function itemsOf(answer: unknown, under?: string): readonly unknown[] | undefined {
  if (Array.isArray(answer)) return answer;
  if (typeof answer !== "object" || answer === null) return undefined;
  if (under !== undefined) return ((answer as TableRow)[under] as unknown[] | undefined) ?? [];
  if (isThing(answer)) return undefined;
  const arrays = Object.values(answer).filter(Array.isArray);
  return arrays.length === 1 ? arrays[0] : undefined;
}

const asRow = (item: unknown): TableRow => (isRow(item) ? item : { value: item });

export interface Shown {
  columns?: readonly string[] | undefined;
  /** The answer's field with the list; empty: the answer is no list. */
  items?: string | undefined;
  /** What a table shows of an item, where that is not the item as it is. */
  row?: (item: TableRow) => TableRow;
  /** How far it is what the answer is about, while it is watched; undefined where that is not known. */
  bar?: (answer: unknown) => string | undefined;
}

/** A list without items is left out on the wire. Programs that read the answer look for it. */
const withList = (answer: unknown, items: string | undefined): unknown =>
  items && isRow(answer) ? { [items]: [], ...answer } : answer;

/** An answer in the form that was asked for. */
export function shown(
  answer: unknown,
  form: OutputForm,
  { io, columns, items, row = (item) => item }: Shown & { io: Io },
): string {
  if (form === "json") return `${JSON.stringify(withList(answer ?? {}, items), null, 2)}\n`;
  const list = items === "" ? undefined : itemsOf(answer, items);
  if (form === "jsonl") return (list ?? [answer ?? {}]).map((one) => `${JSON.stringify(one)}\n`).join("");
  const paint = paintOf(io);
  if (list) return tableOf(list.map(asRow).map(row), { columns, io, paint });
  if (answer === undefined) return `${paint.good("done")}\n`;
  return detailsOf(asRow(answer), { io, paint });
}

/** Our colours stay; what others wrote was shown as text before it was coloured. */
const styled = (text: string): string =>
  text
    .split(ownCodes)
    .map((piece, at) => (at % 2 === 0 ? shownText(piece) : piece))
    .join("");

/** What every command writes with: a terminal obeys nothing in it. Piped or stored bytes stay as they are. */
export function shownIo(io: Io): Io {
  const decoder = new TextDecoder();
  const { isTerminal, input } = io;
  const out: Io["out"] = (text) => {
    if (typeof text === "string") return io.out(isTerminal ? styled(text) : shownText(text));
    return io.out(isTerminal ? shownText(decoder.decode(text, { stream: true })) : text);
  };
  return {
    ...{ environment: io.environment, folder: io.folder, home: io.home, clock: io.clock },
    ...{ isTerminal, columns: io.columns, out },
    note: (text) => io.note(shownText(text)),
    status: (text) => io.status(shownText(text)),
    input: { ...input, ask: (question, options) => input.ask(shownText(question), options) },
    // From this call on the process handles ^C.
    get signal() {
      return io.signal;
    },
  };
}
