import { Fault } from "../kit/fault.ts";
import { markEnd, markPrefix, StoreError } from "./store.ts";

interface DriverError {
  code?: unknown;
  constraint_name?: unknown;
  message?: unknown;
}

const sqlState = /^(?=.*\d)[0-9A-Z]{5}$/;

/**
 * The five characters of a server's refusal, or the driver's word: `CONNECTION_CLOSED`, `ECONNREFUSED`. Of an
 * error that the port has named already, those of its cause.
 */
export function codeOf(error: unknown): string | undefined {
  if (error instanceof StoreError) return codeOf(error.cause);
  const code = (error as DriverError | null | undefined)?.code;
  return typeof code === "string" ? code : undefined;
}

/**
 * The server undid the whole transaction by itself, and the same again may succeed. Two that grant or alter
 * the same thing at once meet as XX000; PostgreSQL does not translate its text.
 */
export const isConflict = (error: unknown): boolean =>
  ["40001", "40P01"].includes(codeOf(error) ?? "") ||
  (codeOf(error) === "XX000" && /^tuple concurrently /.test(String((error as DriverError).message)));

/** A role that lacks a right or a function, and a server that lacks it, as some services do. */
export const mayNotAsk = (error: unknown): boolean => /^(42|0A)/.test(codeOf(error) ?? "");

/** A role, a password or a database that the server does not take is no outage of it. */
export const refusesLogin = (error: unknown): boolean => /^(28|3D)/.test(codeOf(error) ?? "");

export const lacksRight = (error: unknown): boolean => codeOf(error) === "42501";
export const lacksTable = (error: unknown): boolean => codeOf(error) === "42P01";

/** Not an answer of the server: the connection is of no use any more. */
export function isConnectionLoss(error: unknown): boolean {
  const code = codeOf(error);
  if (code === undefined) return false;
  return !sqlState.test(code) || code.startsWith("57P0") || code.startsWith("08");
}

function markOf(message: string): string | undefined {
  const start = message.indexOf(markPrefix);
  const end = message.lastIndexOf(markEnd);
  return start < 0 || end <= start ? undefined : message.slice(start + markPrefix.length, end);
}

/** What the port promises to throw; an error that has no code is none of the database, and stays a defect. */
export function toPostgresTrouble(error: unknown): unknown {
  if (error instanceof StoreError || error instanceof Fault) return error;
  const { constraint_name: constraint, message } = (error ?? {}) as DriverError;
  const code = codeOf(error);
  const text = typeof message === "string" ? message : String(error);
  if (isConflict(error)) return new StoreError("conflict", text, error);
  switch (code) {
    case undefined:
      return error;
    case "23505":
      return new StoreError("unique", typeof constraint === "string" ? constraint : text, error);
    case "55P03":
      return new StoreError("lock_timeout", text, error);
    case "53100":
      return new StoreError("full", text, error);
    case "22P02": {
      const mark = markOf(text);
      return mark === undefined
        ? new StoreError("refused", text, error)
        : new StoreError("marked", mark, error);
    }
    case "22021":
    case "22P05":
      return new Fault("invalid_argument", "text must not contain the character U+0000", { cause: error });
    // A server that only reads: a standby after a failover.
    case "25006":
      return new StoreError("unavailable", text, error);
    default: {
      if (isConnectionLoss(error) || ofServer.test(code)) return new StoreError("unavailable", text, error);
      const isRefused = refusesValue.test(code) || (code === "XX000" && isTooLarge.test(text));
      return new StoreError(isRefused ? "refused" : "other", text, error);
    }
  }
}

/** SQLSTATE classes of a server in trouble, whatever it was asked: resources, system errors. */
const ofServer = /^(53|58)/;

/**
 * SQLSTATE classes that only a statement's value can cause: 22 data exceptions, 23 constraints, 44 checks of
 * views, 54 program limits (an index row over 2,704 bytes).
 */
const refusesValue = /^(22|23|44|54)/;
/** A value over a gigabyte; PostgreSQL does not translate this text either. */
const isTooLarge = /^invalid memory alloc request size/;
