/** An answer of the console: each cell as text, or null. */
export interface SqlAnswer {
  columns: readonly string[];
  rows: readonly (readonly (string | null)[])[];
  /** The server left rows out. */
  isCut: boolean;
  tookMs: number;
}

/** What is wrong with a query, and where in its text as far as the server says. */
export interface SqlProblem {
  message: string;
  from: number;
  to: number;
}

/** The place that ends a message of the server, or else the name in quotes that it complains of. */
export function problemOf(refusal: string, query: string): SqlProblem {
  const message = refusal.replace(/^query: /, "");
  const whole = { message, from: 0, to: query.length };
  if (message === refusal) return { ...whole, to: 0 };
  const [, line, column] = /, line (\d+), column (\d+)$/.exec(message) ?? [];
  if (line && column) {
    const lines = query.split("\n");
    const before = lines.slice(0, Number(line) - 1).reduce((sum, { length }) => sum + length + 1, 0);
    const inLine = [...(lines[Number(line) - 1] ?? "")].slice(0, Number(column) - 1).join("").length;
    const from = Math.min(before + inLine, query.length);
    const [word = " "] = /^(\w+|\S)/.exec(query.slice(from)) ?? [];
    return { message, from, to: Math.min(from + word.length, query.length) };
  }
  const [, name = ""] = /"([^"]+)"/.exec(message) ?? [];
  const from = name === "" ? -1 : query.toLowerCase().indexOf(name.toLowerCase());
  return from < 0 ? whole : { message, from, to: from + name.length };
}

const isNumber = (text: string): boolean => /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text);

/** Columns in which every value is a number, by their places. */
export const numberColumns = ({ columns, rows }: SqlAnswer): number[] =>
  columns
    .map((_, place) => place)
    .filter(
      (place) =>
        rows.some((row) => row[place] !== null) &&
        rows.every((row) => row[place] === null || isNumber(row[place] ?? "")),
    );

/** A cell as spreadsheets read it. One that they would take for a formula is marked as text. */
function cellOf(value: string | null): string {
  if (value === null) return "";
  const text = /^[=+\-@\t\r]/.test(value) && !isNumber(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The answer as RFC 4180 has it. */
export const csvOf = ({ columns, rows }: Pick<SqlAnswer, "columns" | "rows">): string =>
  [columns, ...rows].map((row) => `${row.map(cellOf).join(",")}\r\n`).join("");
