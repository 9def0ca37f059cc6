import type { Logger } from "./types.ts";

const levels = ["debug", "info", "warn", "error", "silent"];

/** One line a message on standard error, with its time, from SVC_LOG_LEVEL (default `info`) on. */
export function consoleLogger(level = globalThis.process?.env?.SVC_LOG_LEVEL ?? "info"): Logger {
  const lowest = Math.max(0, levels.indexOf(level));
  const line = (at: string) => (message: string, fields?: Record<string, unknown>) => {
    if (levels.indexOf(at) < lowest) return;
    console.error(
      `${new Date().toISOString()} svc ${at}: ${message}${fields ? ` ${JSON.stringify(fields)}` : ""}`,
    );
  };
  return { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };
}

/** The same logger with fields on every line. */
export function withFields(log: Logger, own: Record<string, unknown>): Logger {
  const line = (at: keyof Logger) => (message: string, fields?: Record<string, unknown>) =>
    log[at](message, { ...own, ...fields });
  return { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };
}
