import type { Logger } from "./types.ts";

const levels = ["debug", "info", "warn", "error", "silent"];

let ownLines = 0;

/** Whether what is written to the console now comes from a logger, and not from a handler. */
export const isOwnLine = (): boolean => ownLines > 0;

/** A logger whose lines on the console are its own. */
export function ownLogger(log: Logger): Logger {
  const line = (at: keyof Logger) => (message: string, fields?: Record<string, unknown>) =>
    ownLine(() => log[at](message, fields));
  return { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };
}

function ownLine(write: () => void): void {
  ownLines++;
  try {
    write();
  } finally {
    ownLines--;
  }
}

const levelsMax = 8;
const valuesMax = 1_000;

/** JSON of any value, as far as people read it: eight levels, a thousand values. A text of what has none. */
export function jsonOf(value: unknown): string | undefined {
  let left = valuesMax;
  function plain(one: unknown, above: readonly unknown[]): unknown {
    if (typeof one === "bigint") return `${one}`;
    if (typeof one === "string") return one.toWellFormed();
    if (typeof one !== "object" || one === null) return one;
    if (above.includes(one) || above.length === levelsMax || --left < 0) return "…";
    const inside = [...above, one];
    if (ArrayBuffer.isView(one)) return `${one.byteLength} bytes`;
    const { toJSON } = one as { toJSON?: unknown };
    if (typeof toJSON === "function") return plain(toJSON.call(one), inside);
    if (one instanceof Error) return plain({ name: one.name, message: one.message }, inside);
    if (Array.isArray(one)) return one.slice(0, valuesMax).map((item) => plain(item, inside));
    return Object.fromEntries(
      Object.entries(one).map(([name, item]) => [name.toWellFormed(), plain(item, inside)]),
    );
  }
  try {
    return JSON.stringify(plain(value, []));
  } catch {
    return undefined;
  }
}

/** One line a message on standard error, with its time, from SVC_LOG_LEVEL (default `info`) on. */
export function consoleLogger(level = globalThis.process?.env?.SVC_LOG_LEVEL ?? "info"): Logger {
  const lowest = Math.max(0, levels.indexOf(level));
  const line = (at: string) => (message: string, fields?: Record<string, unknown>) => {
    if (levels.indexOf(at) < lowest) return;
    const given = fields ? ` ${jsonOf(fields) ?? ""}` : "";
    ownLine(() => console.error(`${new Date().toISOString()} svc ${at}: ${message}${given}`));
  };
  return { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };
}

/** A handler's logger: fields on every line, which also goes to `write`. An unwritable line fails no run. */
export function handlerLogger(
  log: Logger,
  own: Record<string, unknown>,
  write: (level: keyof Logger, message: string, fields: Record<string, unknown> | undefined) => void,
): Logger {
  const line = (at: keyof Logger) => (message: string, fields?: Record<string, unknown>) => {
    try {
      write(at, message, fields);
    } catch {}
    try {
      ownLine(() => log[at](message, { ...own, ...fields }));
    } catch {}
  };
  return { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };
}
