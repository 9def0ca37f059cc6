import type { Log } from "../../src/kit/log.ts";

export interface LoggedLine {
  severity: keyof Log;
  event: string;
  fields: Record<string, unknown>;
}

/** A log that keeps its lines. */
export function loggedLines(): { log: Log; lines: LoggedLine[] } {
  const lines: LoggedLine[] = [];
  const at =
    (severity: keyof Log) =>
    (event: string, fields: Record<string, unknown> = {}) =>
      void lines.push({ severity, event, fields });
  return { lines, log: { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") } };
}
