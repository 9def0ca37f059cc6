import type * as Library from "libpg-query";
import type { StoreEngine } from "../../../store/store.ts";
import { sqlBytesMax } from "./limits.ts";
import { refused } from "./nodes.ts";
import { type AdmittedQuery, SelectWriter } from "./selects.ts";

let parser: typeof Library | undefined;

/**
 * PostgreSQL's own parser, compiled to WebAssembly; the same grammar stands for both stores. Loaded by the
 * first text: it takes 50 ms, of which a start would wait for 40.
 */
export async function loadParser(): Promise<void> {
  if (parser) return;
  const library = await import("libpg-query");
  await library.loadModule();
  parser = library;
}

/** The one statement of a text, as the parser's tree. */
export function parseOne(field: string, text: string): unknown {
  if (Buffer.byteLength(text) > sqlBytesMax) throw refused(field, `must be at most ${sqlBytesMax} bytes`);
  if (!text.isWellFormed() || text.includes("\0"))
    throw refused(field, "must be well-formed Unicode without zero bytes");
  if (!parser) throw new Error("a statement is read before the parser was loaded");
  const statements = treeOf(parser, field, text);
  if (statements.length !== 1) throw refused(field, `must be one statement, not ${statements.length}`);
  return statements[0]!.stmt;
}

function treeOf(
  { parseSync, hasSqlDetails }: typeof Library,
  field: string,
  text: string,
): { stmt?: unknown }[] {
  try {
    return (parseSync(text) as { stmts?: { stmt?: unknown }[] }).stmts ?? [];
  } catch (error) {
    if (error instanceof RangeError) throw refused(field, "nested too deeply");
    throw refused(
      field,
      `${String((error as Error).message).slice(0, 300)}${hasSqlDetails(error) ? placeOf(error, text) : ""}`,
    );
  }
}

/** Where the parser stopped; empty where it does not say. Its places count characters. */
function placeOf(error: Library.SqlError, text: string): string {
  const { message, cursorPosition } = error.sqlDetails!;
  // The parser says 0 for the first character, and for no place at all.
  if (cursorPosition <= 0 && !message.startsWith("syntax error")) return "";
  const lines = [...text].slice(0, cursorPosition).join("").split("\n");
  return `, line ${lines.length}, column ${[...lines.at(-1)!].length + 1}`;
}

/** Throws an `invalid_argument` that says what of the query is not allowed. */
export const admitQuery = (dialect: StoreEngine, text: string, field = "query"): AdmittedQuery =>
  new SelectWriter(dialect, field).statement(parseOne(field, text));
