import { createHash } from "node:crypto";

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
  const counts: Record<string, number> = {};
  for (const line of body.trimEnd().split("\n")) {
    const { section, sections } = JSON.parse(line) as { section: string; sections?: string[] };
    if (sections) for (const name of sections) counts[name] = 0;
    else counts[section] = (counts[section] ?? 0) + 1;
  }
  const sha256 = createHash("sha256").update(body).digest("hex");
  return `${body}${JSON.stringify({ section: "end", counts, sha256 })}\n`;
}
