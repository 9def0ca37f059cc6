import { type Instant, parseRfc3339, rfc3339 } from "../../../kit/clock.ts";
import { isJsonObject as isObject } from "../../../kit/wkt.ts";

// Lines that handlers wrote. Wrong ones and those over a limit are left out and counted: a line fails no run.

/** Bytes of a line, as the JSON text that it is stored as. */
export const lineBytesMax = 1_024;
export const attemptLinesMax = 200;
/** Bytes of all lines of a run. */
export const runLogBytesMax = 64 * 1024;

export const logLevels = ["debug", "info", "warn", "error"] as const;

export interface LogLine {
  /** RFC 3339. */
  at: string;
  level: (typeof logLevels)[number];
  text: string;
  fields?: Record<string, unknown>;
  /** Name of the step that wrote it. */
  step?: string;
}

/** Lines that came with a report. */
export interface LogChunk {
  /** How many lines the execution had written before these. */
  offset: number;
  /** Lines of the execution so far, with those that its worker left out. */
  total: number;
  /** Lines outside of steps that its handler came to, with those that executions before had written. */
  seen: number;
  lines: readonly LogLine[];
}

/** Lines of a report that are to be stored. */
export interface NewLines {
  /** As in the chunk; a report that comes twice writes none twice. -1 where none is left. */
  place: number;
  total: number;
  seen: number;
  count: number;
  /** JSON text of a list; its bytes. */
  lines: string;
  bytes: number;
}

/** How much of its bounds a run has used. */
export interface LogRoom {
  attemptLines: number;
  runBytes: number;
}

const isCount = (value: unknown): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 10_000_000;

interface SentLogs {
  logs?: unknown;
  log_offset?: unknown;
  log_lost?: unknown;
  log_seen?: unknown;
}

/** The lines of a report: `log_offset`, `logs`, `log_lost` and `log_seen`. Undefined where it brings none. */
export function readLogs(
  { logs, log_offset: given, log_lost: lost, log_seen: seen }: SentLogs,
  now: Instant,
): LogChunk | undefined {
  if (!Array.isArray(logs) && !isCount(lost)) return undefined;
  const all = Array.isArray(logs) ? logs : [];
  const offset = isCount(given) ? given : 0;
  const lines = all.slice(0, attemptLinesMax).flatMap((line) => readLine(line, now) ?? []);
  return {
    offset,
    total: offset + all.length + (isCount(lost) ? lost : 0),
    seen: isCount(seen) ? seen : 0,
    lines,
  };
}

/** As the SDK writes times, of a day that every month has: it needs no further look. */
const plainTime = /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/;

function readTime(at: unknown, now: Instant): string {
  if (typeof at !== "string") return rfc3339(now);
  return plainTime.test(at) ? at : rfc3339(parseRfc3339(at) ?? now);
}

function readLine(line: unknown, now: Instant): LogLine | undefined {
  if (!isObject(line) || typeof line.text !== "string") return undefined;
  const { at, level, text, fields, step } = line;
  const known = logLevels.find((one) => one === level) ?? "info";
  return {
    ...{ at: readTime(at, now), level: known, text: storable(text) },
    ...(isObject(fields) && Object.keys(fields).length > 0 && { fields: mapTexts(fields, storable) }),
    ...(typeof step === "string" && step !== "" && { step: storable(step) }),
  };
}

/** PostgreSQL takes no NUL, and replaces half a surrogate. */
const storable = (text: string): string =>
  text.includes("\0") ? text.replaceAll("\0", "\ufffd").toWellFormed() : text.toWellFormed();

/** Deeper than this a value is written as text. */
const levelsMax = 8;

function mapTexts<Value>(value: Value, change: (text: string) => string, level = 0): Value {
  const map = (one: unknown): unknown => {
    if (typeof one === "string") return change(one);
    if (typeof one === "number") return change(`${one}`) === `${one}` ? one : change(`${one}`);
    if (typeof one !== "object" || one === null) return one;
    if (level === levelsMax) return "…";
    return mapTexts(one, change, level + 1);
  };
  if (Array.isArray(value)) return value.map(map) as Value;
  return Object.fromEntries(
    Object.entries(value as object).map(([name, one]) => [change(name), map(one)]),
  ) as Value;
}

/** Shorter values are words that stand everywhere. */
const secretCharsMin = 4;
const secretLineCharsMin = 8;

/** Of a longer line that may hold secrets only the length is said: its beginning may be part of a secret. */
const maskedCharsMax = 8 * 1024;

const escaped = (text: string): string => JSON.stringify(text).slice(1, -1);

/** As it is, in JSON, in JSON in JSON, and as `util.inspect` writes it between either quotes. */
const waysOf = (one: string): string[] => {
  const inJson = escaped(one);
  const inspected = inJson.replaceAll('\\"', '"');
  return [one, inJson, escaped(inJson), inspected, inspected.replaceAll("'", "\\'")];
};

/** Of secrets with more lines than that nothing is masked, and no line of their functions is kept. */
const formsMax = 2_000;

/** Secrets as texts have them, and their lines, where texts are split at them; the longest first. */
function formsOf(secrets: readonly string[]): string[] {
  const forms = new Set<string>();
  for (const secret of secrets) {
    if (secret.length < secretCharsMin) continue;
    const lines = secret.split(/\r?\n/).filter(({ length }) => length >= secretLineCharsMin);
    for (const one of [secret, ...lines]) {
      // No line that is masked is as long.
      if (one.length <= maskedCharsMax) for (const way of waysOf(one)) forms.add(way);
      if (forms.size > formsMax) throw new RangeError("the secrets of the function have too many lines");
    }
  }
  return [...forms].sort((one, other) => other.length - one.length);
}

const maskable = (line: LogLine): LogLine => {
  const { fields, ...rest } = line;
  const isWide = fields !== undefined && JSON.stringify(fields).length > 2 * lineBytesMax;
  if (isWide) return maskable(rest);
  if (JSON.stringify(line).length <= maskedCharsMax) return line;
  const { at, level, text } = line;
  return {
    at,
    level,
    text: text.length <= maskedCharsMax / 2 ? text : `(a text of ${text.length} characters)`,
  };
};

const maskOf = (hidden: readonly string[]) => (text: string) =>
  hidden.reduce(
    (rest, secret) => (secret.length > rest.length ? rest : rest.replaceAll(secret, "***")),
    text,
  );

/** Replaces secrets wherever they stand. */
export function maskedLines(given: readonly LogLine[], secrets: readonly string[]): readonly LogLine[] {
  const hidden = formsOf(secrets);
  if (hidden.length === 0) return given;
  const lines = given.map(maskable);
  const mask = maskOf(hidden);
  return lines.map(({ text, fields, step, ...line }) => ({
    ...{ ...line, text: mask(text) },
    ...(fields && { fields: mapTexts(fields, mask) }),
    ...(step !== undefined && { step: mask(step) }),
  }));
}

/** The beginning of a text. Secrets are replaced before it is cut, so that none is left in part. */
export function maskedText(text: string, secrets: readonly string[], charsMax: number): string {
  if (text.length > maskedCharsMax && secrets.some(({ length }) => length > maskedCharsMax))
    return `(a text of ${text.length} characters)`;
  return maskOf(formsOf(secrets))(text).slice(0, charsMax).toWellFormed();
}

/** Makes room: the fields go first, then the end of the text. */
function fitting(line: LogLine): string {
  const whole = JSON.stringify(line);
  if (3 * whole.length <= lineBytesMax || Buffer.byteLength(whole) <= lineBytesMax) return whole;
  const { fields: _, text, step, ...rest } = line;
  const cut = (charsMax: number) => {
    const shown = text.length <= charsMax ? text : `${text.slice(0, charsMax).toWellFormed()}…`;
    return JSON.stringify({
      ...rest,
      text: shown,
      ...(step !== undefined && { step: step.slice(0, 100).toWellFormed() }),
    });
  };
  let charsMax = lineBytesMax;
  while (charsMax > 0 && Buffer.byteLength(cut(charsMax)) > lineBytesMax) charsMax -= 64;
  return cut(charsMax);
}

/** No more of the lines than may have room, so that none is masked for nothing. */
export function linesFitting({ lines }: LogChunk, { attemptLines, runBytes }: LogRoom): readonly LogLine[] {
  let charsLeft = runLogBytesMax - runBytes;
  const some = lines.slice(0, Math.max(0, attemptLinesMax - attemptLines));
  if (some.length * lineBytesMax <= charsLeft) return some;
  return some.filter((line) => {
    if (charsLeft <= 0) return false;
    charsLeft -= Math.min(JSON.stringify(line).length, lineBytesMax);
    return true;
  });
}

/** As many of the lines as there is room for. */
export function boundLines(
  { offset, total, seen, lines }: LogChunk,
  { attemptLines, runBytes }: LogRoom,
): NewLines {
  const texts: string[] = [];
  let bytes = 0;
  for (const line of lines) {
    const text = fitting(line);
    const size = Buffer.byteLength(text);
    if (attemptLines + texts.length >= attemptLinesMax || runBytes + bytes + size > runLogBytesMax) break;
    texts.push(text);
    bytes += size;
  }
  const place = texts.length > 0 ? offset : -1;
  return { place, total, seen, count: texts.length, lines: `[${texts.join(",")}]`, bytes };
}

/** Whether it is what `boundLines` makes: of an export that somebody may have written. */
export const isListOfLines = (value: unknown): boolean =>
  Array.isArray(value) &&
  value.length <= attemptLinesMax &&
  value.every((line) => {
    if (!isObject(line)) return false;
    const { at, level, text, fields = {}, step = "" } = line;
    const texts = [at, level, text, step].every((one) => typeof one === "string");
    return texts && parseRfc3339(at as string) !== undefined && isObject(fields);
  });
