import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { exportFormat, exportSections } from "../store/exported-tables.ts";
import { importEnvironmentsMax, importLineBytesMax } from "./limits.ts";

/** The file cannot be imported; the message says where and why. */
export class BadFile extends Error {}

/** The first line of an export. */
export interface ExportMeta {
  exported_at: string;
  org: { name: string; preferences?: object };
  /** With the ends of their logs. */
  environments: { id: string; name: string; position: number }[];
}

export interface ExportLine {
  section: string;
  kind: string;
  environment_id?: string;
  row: Record<string, unknown>;
}

export interface CheckedFile {
  meta: ExportMeta;
  /** Of the lines between the first and the last. */
  lineCount: number;
  sum: string;
}

const lineEnd = 10;

/** The lines of a file in pieces, each with its line end; the last one has none where the file was cut. */
export async function* linesOf(file: string): AsyncGenerator<Buffer[]> {
  let rest: Buffer[] = [];
  let restBytes = 0;
  for await (const chunk of createReadStream(file) as AsyncIterable<Buffer>) {
    const lines: Buffer[] = [];
    let from = 0;
    for (let at = chunk.indexOf(lineEnd); at >= 0; at = chunk.indexOf(lineEnd, from)) {
      const end = chunk.subarray(from, at + 1);
      lines.push(rest.length > 0 ? Buffer.concat([...rest, end]) : end);
      rest = [];
      restBytes = 0;
      from = at + 1;
    }
    if (from < chunk.length) {
      rest.push(chunk.subarray(from));
      restBytes += chunk.length - from;
    }
    if (restBytes > importLineBytesMax)
      throw new BadFile(`a line is longer than ${importLineBytesMax} bytes: this is no export of ours`);
    yield lines;
  }
  if (rest.length > 0) yield [Buffer.concat(rest)];
}

export function parsedLine(line: Buffer, number: number): unknown {
  try {
    return JSON.parse(line.toString("utf8"));
  } catch {
    throw new BadFile(`line ${number} is no JSON`);
  }
}

const orgName = /^[^\0\r\n]{1,200}$/;
const environmentId = /^env_[A-Za-z0-9_-]{1,60}$/;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function metaOf(value: unknown): ExportMeta {
  if (!isObject(value) || value.section !== "meta" || value.format !== exportFormat.name)
    throw new BadFile(
      `line 1: must say "format": "${exportFormat.name}", as the first line of an export does`,
    );
  if (value.format_version !== exportFormat.version)
    throw new BadFile(
      `line 1: format_version ${JSON.stringify(value.format_version)} is not known here (${exportFormat.version} is)`,
    );
  if (value.whole !== true)
    throw new BadFile("the file is a part of an org: export it without include, from and to");
  const { org, environments, exported_at } = value;
  if (!isObject(org) || typeof org.name !== "string" || !orgName.test(org.name))
    throw new BadFile("line 1: org.name must be a name");
  if (Number.isNaN(Date.parse(String(exported_at)))) throw new BadFile("line 1: exported_at must be a time");
  const isHead = (one: unknown) =>
    isObject(one) &&
    typeof one.id === "string" &&
    environmentId.test(one.id) &&
    Number.isSafeInteger(one.position) &&
    (one.position as number) >= 0;
  if (
    !Array.isArray(environments) ||
    environments.length > importEnvironmentsMax ||
    !environments.every(isHead) ||
    new Set(environments.map(({ id }) => id)).size < environments.length
  )
    throw new BadFile("line 1: environments must be a list of ids and positions");
  return value as unknown as ExportMeta;
}

/** The file is as it was written: its last line has the counts and the sum of what is before. */
export async function requireWhole(file: string): Promise<CheckedFile> {
  const hash = createHash("sha256");
  const counts = new Map<string, number>();
  let meta: ExportMeta | undefined;
  let last: Buffer | undefined;
  let number = 0;
  const sectionName = /^\{"section":"([a-z]+)"/;
  for await (const lines of linesOf(file))
    for (const line of lines) {
      if (last) {
        hash.update(last);
        number++;
        if (number === 1) meta = metaOf(parsedLine(last, 1));
        else {
          const section = sectionName.exec(last.toString("latin1", 0, 40))?.[1] ?? "";
          counts.set(section, (counts.get(section) ?? 0) + 1);
        }
      }
      last = line;
    }
  const sum = hash.digest("hex");
  if (!last) throw new BadFile("the file is empty");
  const isEnd = last.at(-1) === lineEnd && last.toString("latin1", 0, 40).startsWith('{"section":"end"');
  if (!meta || !isEnd) throw new BadFile("the file was cut: its last line must have the counts and the sum");
  const end = parsedLine(last, number + 1) as { counts?: Record<string, number>; sha256?: string };
  if (end.sha256 !== sum)
    throw new BadFile("the file was altered: its lines have another sum than its last one says");
  for (const section of exportSections)
    if ((counts.get(section) ?? 0) !== end.counts?.[section])
      throw new BadFile(`the file does not have the ${section} that its last line counts`);
  return { meta, lineCount: number - 1, sum };
}
