import { createHash } from "node:crypto";
import { exportSections } from "../../src/store/exported-tables.ts";

/** A line of an export, parsed. */
// biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
export type ExportLine = any;

export interface ReadExport {
  text: string;
  lines: ExportLine[];
  meta: ExportLine;
  end: ExportLine;
  rowsOf(kind: string): Record<string, unknown>[];
}

export const exportPath = "/api/v1/export";

/** The answer to a request for an export; its text is no JSON, but lines of it. */
export async function askExport(url: string, key: string | null, query = "") {
  const response = await fetch(`${url}${exportPath}${query}`, {
    headers: key === null ? {} : { authorization: `Bearer ${key}` },
  });
  const text = await response.text();
  // biome-ignore lint/suspicious/noExplicitAny: of a refusal
  const refusal: any = response.ok ? undefined : JSON.parse(text);
  return { status: response.status, headers: response.headers, text, refusal };
}

/** An export, read whole. */
export async function exportOf(url: string, key: string, query = ""): Promise<ReadExport> {
  const { status, text } = await askExport(url, key, query);
  if (status !== 200) throw new Error(`export answered ${status}: ${text}`);
  const lines = text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as ExportLine);
  return {
    ...{ text, lines, meta: lines[0], end: lines.at(-1) },
    rowsOf: (kind) => lines.filter((line) => line.kind === kind).map((line) => line.row),
  };
}

/** The text with its last line made anew: a file that somebody altered with care. */
export function sealed(text: string): string {
  const body = text.slice(0, text.lastIndexOf("\n", text.length - 2) + 1);
  const counts: Record<string, number> = Object.fromEntries(exportSections.map((name) => [name, 0]));
  for (const [, section] of body.matchAll(/^\{"section":"([a-z]+)"/gm))
    if (section !== "meta") counts[section!] = (counts[section!] ?? 0) + 1;
  const sha256 = createHash("sha256").update(body).digest("hex");
  return `${body}${JSON.stringify({ section: "end", counts, sha256 })}\n`;
}
