/** A text that a spreadsheet would take for a formula stands behind an apostrophe. */
const asText = (text: string): string => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);

const cell = (text: string): string => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Rows of texts as CSV (RFC 4180), the names of the columns first. */
export const csv = (rows: readonly (readonly string[])[]): string =>
  rows.map((cells) => `${cells.map(cell).join(",")}\r\n`).join("");

/** The same for spreadsheets. */
export const sheet = (rows: readonly (readonly string[])[]): string =>
  csv(rows.map((cells) => cells.map(asText)));
