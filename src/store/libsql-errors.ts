import { Fault } from "../kit/fault.ts";
import { StoreError } from "./store.ts";

const constraint = /constraint failed: (.*)$/;

/** What the port promises to throw; an error that it does not name stays as it is, a defect. */
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
  return /^SQLITE_(BUSY|LOCKED|IOERR|CANTOPEN|READONLY)/.test(code)
    ? new StoreError("unavailable", message, error)
    : error;
}
