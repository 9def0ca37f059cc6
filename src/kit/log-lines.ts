import pino from "pino";
import { type Clock, rfc3339 } from "./clock.ts";
import type { Log } from "./log.ts";
import { redactFields } from "./redact.ts";

/** What a terminal obeys (C0 but line ends and tabs, DEL, C1), and what turns the order of letters. */
const obeyed =
  /\r(?!\n)|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * A text as a terminal may get it. Parts may come from anyone: they could move the cursor, change the title,
 * or look like another text. Such characters are escaped as in JSON, so that JSON keeps its value.
 */
export const shownText = (text: string): string =>
  text.replaceAll(obeyed, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

export interface LogOptions {
  level: LogLevel;
  format: "json" | "text";
  clock: Pick<Clock, "now">;
  /** On every line of JSON. */
  base: Record<string, unknown>;
  /** Takes whole lines; standard output when left out. */
  write?: (line: string) => void;
}

const severities = ["debug", "info", "warn", "error"] as const;
type Severity = (typeof severities)[number];

type Put = (severity: Severity, event: string, fields: Record<string, unknown>) => void;

function jsonLines({ level, base, clock, write }: LogOptions): Put {
  // Synchronous: the last line before an end is the one that says why.
  const target = write ? { write } : pino.destination({ dest: 1, sync: true });
  const lines = pino(
    {
      level,
      base,
      timestamp: () => `,"time":"${rfc3339(clock.now())}"`,
      messageKey: "event",
      formatters: { level: (label) => ({ level: label }) },
    },
    target,
  );
  return (severity, event, fields) => lines[severity](redactFields(fields), event);
}

const bare = /^[\w.:/@%+-]+$/;
const textOf = (value: unknown): string => {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return typeof value === "string" && !bare.test(text) ? JSON.stringify(text) : text;
};

function textLines({ clock, write }: LogOptions): Put {
  const put = write ?? ((line: string) => void process.stdout.write(line));
  return (severity, event, fields) => {
    const said: string[] = [];
    let stack = "";
    for (const [name, value] of Object.entries(redactFields(fields))) {
      if (value === undefined) continue;
      const error = value as { message?: unknown; stack?: unknown };
      if (fields[name] instanceof Error) {
        said.push(`${name}=${textOf(error.message)}`);
        if (typeof error.stack === "string") stack += `\n${error.stack}`;
      } else {
        said.push(`${name}=${textOf(value)}`);
      }
    }
    const time = rfc3339(clock.now()).slice(11, 23);
    put(`${shownText([time, severity.padEnd(5), event, ...said].join(" ") + stack)}\n`);
  };
}

/** Log lines as settings want them. Secrets are taken out here, whatever a caller passes. */
export function logLines(options: LogOptions): Log {
  const put = options.format === "json" ? jsonLines(options) : textLines(options);
  const least = severities.indexOf(options.level as Severity);
  const from = options.level === "silent" ? severities.length : least;
  const at = (severity: Severity) =>
    severities.indexOf(severity) < from
      ? () => {}
      : (event: string, fields: Record<string, unknown> = {}) => put(severity, event, fields);
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}
