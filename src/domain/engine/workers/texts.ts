import { invalid } from "../../../kit/fault.ts";
import { stepOutputBytesMax } from "../../../kit/limits.ts";
import { jsonText as payloadText } from "../../../kit/payload-json.ts";
import type { ErrorCause, RunError } from "../runs/run.ts";

/**
 * Refuses texts that the database cannot store unchanged. Postgres rejects NUL, which would fail a whole
 * flush of reports. It replaces a lone surrogate, and the worker would not find its step again.
 */
export function plainText(field: string, text: string): string {
  if (text.includes("\0")) throw invalid(field, "must not contain NUL");
  if (!text.isWellFormed()) throw invalid(field, "must not hold half a surrogate");
  return text;
}

export const jsonText = (field: string, value: unknown): string =>
  payloadText(field, value, stepOutputBytesMax);

/** Of an error: characters of its message, of its stack and of its words. */
const errorMessageCharsMax = 16_384;
const errorStackCharsMax = 8_192;
const errorWordCharsMax = 1_000;
/** Errors that one error carries along, and how far below it. */
const causesMax = 20;
const causeLevelsMax = 5;

/** Texts of errors are for people: what cannot be stored is replaced, and what is too long is cut. */
function shown(text: string, charsMax: number): string {
  const whole =
    text.length <= charsMax ? text : `${text.slice(0, charsMax - 1).replace(/[\ud800-\udbff]$/, "")}…`;
  return whole.toWellFormed();
}

/** The fields of an error, as they are stored. */
export function errorTexts(error: Record<string, unknown>): Omit<RunError, "retryable"> {
  let left = causesMax;

  function causeOf(cause: unknown, level: number): ErrorCause | undefined {
    if (cause === undefined || cause === null || level > causeLevelsMax || --left < 0) return undefined;
    return textsOf(
      typeof cause === "object" ? (cause as Record<string, unknown>) : { message: `${cause}` },
      level,
    );
  }

  function textsOf(
    { message, name, code, stack, cause, errors }: Record<string, unknown>,
    level: number,
  ): ErrorCause {
    const word = (value: unknown) => (typeof value === "string" ? shown(value, errorWordCharsMax) : "");
    const causeFound = causeOf(cause, level + 1);
    const list = Array.isArray(errors) ? errors.flatMap((one) => causeOf(one, level + 1) ?? []) : [];
    return {
      message:
        typeof message === "string" ? shown(message, errorMessageCharsMax) : "the worker gave no reason",
      ...(word(name) && { name: word(name) }),
      ...(word(code) && { code: word(code) }),
      ...(typeof stack === "string" && stack !== "" && { stack: shown(stack, errorStackCharsMax) }),
      ...(causeFound && { cause: causeFound }),
      ...(list.length > 0 && { errors: list }),
    };
  }

  return textsOf(error, 0);
}

/** Most are; nothing is written where nothing changes. */
function wellFormed(value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (typeof value !== "object" || value === null) return value;
  const known = value as Record<string, unknown>;
  for (const name of Object.keys(known)) {
    const one = known[name];
    const mended = wellFormed(one);
    const isKept = name.isWellFormed();
    if (!isKept) delete known[name];
    if (!isKept || mended !== one) known[name.toWellFormed()] = mended;
  }
  return value;
}

/** Makes texts of errors and lines well-formed in a report, endpoint's answer or exchange of reports. */
export function mendErrors(body: unknown): void {
  if (typeof body !== "object" || body === null) return;
  const sent = body as Record<string, unknown>;
  for (const list of [sent.reports, sent.steps])
    if (Array.isArray(list)) for (const one of list) mendErrors(one);
  if (sent.error) sent.error = wellFormed(sent.error);
  if (sent.logs) sent.logs = wellFormed(sent.logs);
}
