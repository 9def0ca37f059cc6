import { Fault } from "../kit/fault.ts";
import { StoreError } from "./store.ts";

/** What a value of the statement alone can cause: too large, against a constraint, no such type. */
const refusesValue = /^SQLITE_(TOOBIG|CONSTRAINT|MISMATCH|RANGE)/;
/** The engine's functions say only SQLITE_ERROR of a text that is no JSON, or a number that does not fit. */
const isMisfit =
  /malformed JSON|JSON path|JSON cannot hold|integer overflow|string or blob too big|pattern too complex/;
const constraint = /constraint failed: (.*)$/;
const ofServer = /^SQLITE_(BUSY|LOCKED|IOERR|CANTOPEN|READONLY|NOMEM|PROTOCOL)/;

/** What the port promises to throw; an error without a code of SQLite stays as it is, a defect. */
export function toLibsqlTrouble(error: unknown): unknown {
  if (error instanceof StoreError || error instanceof Fault) return error;
  const code = String((error as { code?: unknown } | null)?.code ?? "");
  const message = error instanceof Error ? error.message : String(error);
  switch (code) {
    case "SQLITE_CONSTRAINT_UNIQUE":
    case "SQLITE_CONSTRAINT_PRIMARYKEY":
    case "SQLITE_CONSTRAINT_ROWID":
      return new StoreError("unique", constraint.exec(message)?.[1] ?? message, error);
    case "SQLITE_FULL":
      return new StoreError("full", message, error);
  }
  if (refusesValue.test(code) || isMisfit.test(message)) return new StoreError("refused", message, error);
  if (ofServer.test(code)) return new StoreError("unavailable", message, error);
  return code.startsWith("SQLITE_") ? new StoreError("other", message, error) : error;
}
