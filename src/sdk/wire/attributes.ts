import { NonRetryableError } from "./errors.ts";
import type { AttributeCondition, AttributeValue, FunctionDefinition } from "./types.ts";

/** The server's bounds. */
const attributesMax = 32;
const textBytesMax = 256;
const namePattern = /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/;

type ReportedValue = string | number | boolean | { time: string } | null;
export type ReportedAttributes = Record<string, ReportedValue>;

const refused = (message: string) => new NonRetryableError(message, { code: "ATTRIBUTE_REFUSED" });

/** A value as a report has it. NonRetryableError for what the server would refuse. */
function reported(name: string, value: unknown): ReportedValue {
  if (value === null) return null;
  if (typeof value === "boolean") return value;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  if (value instanceof Date && !Number.isNaN(value.getTime())) {
    const time = value.toISOString();
    if (time.length === "2026-01-01T00:00:00.000Z".length) return { time };
    throw refused(`run.set: the time of ${name} must be in the years 0 to 9999`);
  }
  if (typeof value !== "string")
    throw refused(`run.set: ${name} must be a text, a finite number, a boolean, a valid Date or null`);
  if (value.includes("\0") || !value.isWellFormed())
    throw refused(`run.set: ${name} must be well-formed text without NUL`);
  if (new TextEncoder().encode(value).length > textBytesMax)
    throw refused(`run.set: ${name} must be at most ${textBytesMax} bytes of text`);
  return value;
}

/** What `run.set` of one execution does: checks, and hands on. */
export function attributeSetter(carry: (attributes: ReportedAttributes) => void) {
  const names = new Set<string>();
  return (attributes: Record<string, AttributeValue | null>): void => {
    const entries = Object.entries(attributes).map(([name, value]) => {
      if (!namePattern.test(name))
        throw refused(
          `run.set: "${name.slice(0, 80)}" must be a letter and up to 63 letters, digits, dots, hyphens and underscores`,
        );
      return [name, reported(name, value)] as const;
    });
    for (const [name, value] of entries) value === null ? names.delete(name) : names.add(name);
    if (names.size > attributesMax) throw refused(`run.set: a run has at most ${attributesMax} attributes`);
    if (entries.length > 0) carry(Object.fromEntries(entries));
  };
}

/** As a handler gave it. */
export const givenValue = (value: NonNullable<ReportedValue>): AttributeValue =>
  typeof value === "object" ? new Date(value.time) : value;

type FilterMessage = Record<string, unknown>;

function messageOf(value: AttributeValue): FilterMessage {
  if (value instanceof Date) return { time: value.toISOString() };
  if (typeof value === "string") return { text: value };
  return typeof value === "number" ? { number: value } : { flag: value };
}

const isValue = (condition: AttributeCondition | AttributeValue): condition is AttributeValue =>
  typeof condition !== "object" || condition instanceof Date;

/** Conditions as the list of filters of the wire. Throws TypeError for one that compares with nothing. */
export const filtersOf = (
  attributes: Readonly<Record<string, AttributeCondition | AttributeValue>>,
): FilterMessage[] =>
  Object.entries(attributes).flatMap(([name, condition]) => {
    if (condition !== undefined && isValue(condition)) return [{ name, ...messageOf(condition) }];
    const { exists, ...values } = condition ?? {};
    const filters = [
      ...(exists ? [{ name, op: "exists" }] : []),
      ...Object.entries(values).flatMap(([op, value]) =>
        (value ?? undefined) === undefined ? [] : [{ name, op, ...messageOf(value) }],
      ),
    ];
    if (filters.length === 0) throw new TypeError(`attributes: ${name} is compared with nothing`);
    return filters;
  });

/** The attributes of a run. */
export function readAttributes(list: unknown): Record<string, AttributeValue> {
  const rows = list as {
    name: string;
    text?: string;
    number?: number;
    flag?: boolean;
    time?: string;
  }[];
  return Object.fromEntries(
    rows.map(({ name, text, number, flag, time }) => [
      name,
      time !== undefined ? new Date(time) : (text ?? number ?? flag ?? ""),
    ]),
  );
}

/** As they are registered. */
export const declaredAttributes = (
  attributes: NonNullable<FunctionDefinition["attributes"]>,
): { name: string; path: string; type?: string }[] =>
  Object.entries(attributes).map(([name, given]) =>
    typeof given === "string" ? { name, path: given } : { name, ...given },
  );

export const readDeclared = (list: unknown): NonNullable<FunctionDefinition["attributes"]> =>
  Object.fromEntries(
    (list as { name: string; path: string; type: "text" }[]).map(({ name, path, type }) => [
      name,
      { path, type },
    ]),
  );
