import { Fault, invalid } from "./fault.ts";

/**
 * Levels of arrays and objects in a payload. What comes in here leaves by every door: readers of protobuf in
 * other languages stop at 100 messages inside each other, a level of objects is three of them (Value, Struct,
 * entry), and up to four lie around a payload.
 */
export const payloadLevelsMax = 32;
/** Levels around a payload in JSON: an exchange of reports with steps has the most of them, five. */
export const envelopeLevelsMax = 8;
const bodyLevelsMax = payloadLevelsMax + envelopeLevelsMax;
/** What was stored before there was this limit is shown up to so many levels. */
export const storedLevelsMax = 1_000;

const tooDeep = `nested deeper than ${payloadLevelsMax} levels`;
const half = "must not hold half a surrogate";
const outOfRange = "number is out of range";
const pathCharsMax = 200;

const quote = 34;
const backslash = 92;

/** The place after the text that begins before `at`; the end when it does not end. */
function behindText(text: string, from: number): number {
  for (let at = text.indexOf('"', from); at >= 0; at = text.indexOf('"', at + 1)) {
    let slashes = 0;
    while (text.charCodeAt(at - 1 - slashes) === backslash) slashes++;
    if (slashes % 2 === 0) return at;
  }
  return text.length;
}

/** Whether JSON text opens more levels than `max`; it is not parsed. */
export function isNested(text: string, max: number): boolean {
  // A level takes two characters, so that most texts need no look.
  if (text.length <= 2 * max) return false;
  let level = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === quote) at = behindText(text, at + 1);
    // [ and {
    else if (code === 91 || code === 123) {
      if (++level > max) return true;
    }
    // ] and }
    else if (code === 93 || code === 125) level--;
  }
  return false;
}

/** Whether every protocol can carry it as it is. */
function isPlain(value: unknown, levels: number): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || value === null) return true;
  if (levels === 0) return false;
  if (Array.isArray(value)) {
    for (const item of value) if (!isPlain(item, levels - 1)) return false;
    return true;
  }
  for (const key in value) {
    if (!key.isWellFormed() || !isPlain((value as Record<string, unknown>)[key], levels - 1)) return false;
  }
  return true;
}

const shown = (key: string) => key.slice(0, 80).toWellFormed();

/** The first thing in it that not every protocol can carry, with its path. */
function breachOf(value: unknown, levels: number, path: string): [path: string, rule: string] | undefined {
  if (typeof value === "string") return value.isWellFormed() ? undefined : [path, half];
  if (typeof value === "number") return Number.isFinite(value) ? undefined : [path, outOfRange];
  if (typeof value !== "object" || value === null) return undefined;
  if (levels === 0) return [path, tooDeep];
  const isList = Array.isArray(value);
  for (const key of Object.keys(value)) {
    const inner = isList ? `${path}[${key}]` : path === "" ? shown(key) : `${path}.${shown(key)}`;
    if (!isList && !key.isWellFormed()) return [inner, half];
    const found = breachOf((value as Record<string, unknown>)[key], levels - 1, inner);
    if (found) return found;
  }
  return undefined;
}

function requirePlain(field: string, value: unknown, levels: number): void {
  if (isPlain(value, levels)) return;
  const [path, rule] = breachOf(value, levels, field) ?? [field, tooDeep];
  // A deep path says where by its beginning.
  throw invalid(rule === tooDeep ? field || "body" : path.slice(0, pathCharsMax) || "body", rule);
}

/**
 * Throws the fault with the path of what could not leave as it came: too many levels, a number beyond a
 * double, half a surrogate.
 */
export const requirePayload = (field: string, value: unknown): void =>
  requirePlain(field, value, payloadLevelsMax);

/**
 * A payload as the text that is stored; absent is null. Throws as `requirePayload` does, and for what is
 * larger than `bytesMax`.
 */
export function jsonText(field: string, value: unknown, bytesMax?: number): string {
  if (value === undefined) return "null";
  requirePayload(field, value);
  const text = JSON.stringify(value);
  if (bytesMax !== undefined && Buffer.byteLength(text) > bytesMax)
    throw invalid(field, `at most ${bytesMax} bytes of JSON`);
  return text;
}

/** `field` names a text inside a message, as `InjectStepOutput.newOutput` is one. */
function malformed(field: string | undefined, why: string, cause?: unknown): Fault {
  const message = field === undefined ? `malformed JSON: ${why}` : `${field}: must be JSON text: ${why}`;
  return new Fault("invalid_argument", message, { ...(field !== undefined && { field }), cause });
}

/**
 * JSON from outside, at whatever door. It is scanned before it is parsed, because the runtime takes seconds
 * for many levels. `mend` may change the value before it is refused. Throws the fault for the caller.
 */
export function parseJson(text: string, field?: string, mend?: (value: unknown) => void): unknown {
  if (isNested(text, bodyLevelsMax)) throw malformed(field, tooDeep);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^JSON Parse error: /, "") : "not JSON";
    throw malformed(field, why.slice(0, pathCharsMax), error);
  }
  // Text that came as UTF-8 has half a surrogate only where it is written as an escape.
  if (text.includes("\\u")) {
    mend?.(value);
    requirePlain(field ?? "", value, bodyLevelsMax);
  }
  return value;
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** The same from bytes, which must be UTF-8: what is not would be stored as another text. */
export function parseJsonBytes(bytes: Uint8Array, field?: string, mend?: (value: unknown) => void): unknown {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch (error) {
    throw malformed(field, "not UTF-8", error);
  }
  return parseJson(text, field, mend);
}

const unshown = `(nested deeper than ${storedLevelsMax} levels)`;

/**
 * A stored payload for an answer. What an earlier version let in and nothing can write is shown as a text
 * that says so.
 */
export const storedJson = (text: string): unknown =>
  isNested(text, storedLevelsMax) ? unshown : JSON.parse(text);
