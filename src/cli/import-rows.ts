import { createHash } from "node:crypto";
import { type ExportedTable, exportedTables } from "../store/exported-tables.ts";
import { BadFile, type ExportLine, type ExportMeta } from "./import-file.ts";

/** A row as it is written: by column. */
export type ImportedRow = Record<string, string | number | null>;

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";
const tailDigits = 16;
const ownId = /^([a-z]+)_([0-9a-hjkmnp-tv-z]{10})([0-9a-hjkmnp-tv-z]{16})$/;
const otherId = /^([a-z]{1,16})_[A-Za-z0-9_-]{1,60}$/;
/** They are the same in every org. */
const builtinRole = /^role_(admin|developer|viewer)$/;

function digitsOf(value: bigint, count: number): string {
  let rest = value;
  let text = "";
  for (let place = 0; place < count; place++) {
    text = alphabet[Number(rest & 31n)] + text;
    rest >>= 5n;
  }
  return text;
}

const numberOf = (digits: string): bigint =>
  [...digits].reduce((sum, digit) => (sum << 5n) | BigInt(alphabet.indexOf(digit)), 0n);

/**
 * Other ids for another import: no two orgs of an installation share one. The time in an id stays, and its
 * tail moves by the same amount everywhere, so that ids of one millisecond keep their order.
 */
export function idsFor(seed: string): (id: string) => string | undefined {
  const digest = (text: string) => createHash("sha256").update(`${seed}\n${text}`).digest();
  // Half of the room is left: tails begin in the lower half.
  const shift = (digest("ids").readBigUInt64BE() << 15n) | 1n;
  const room = 1n << BigInt(5 * tailDigits);
  return (id) => {
    if (builtinRole.test(id)) return id;
    const [, kind, time, tail] = ownId.exec(id) ?? [];
    if (kind !== undefined) return `${kind}_${time}${digitsOf((numberOf(tail!) + shift) % room, tailDigits)}`;
    const [, word] = otherId.exec(id) ?? [];
    if (word === undefined) return undefined;
    const number = BigInt(`0x${digest(id).toString("hex").slice(0, 34)}`);
    return `${word}_${digitsOf(number, 26)}`;
  };
}

const tableOf = new Map(exportedTables.map((table) => [`${table.section}.${table.table}`, table]));

function requireKind(
  { columns }: ExportedTable,
  name: string,
  value: unknown,
  bad: (rule: string) => BadFile,
): void {
  const kind = columns[name];
  if (kind === undefined) throw bad(`unknown column ${JSON.stringify(name.slice(0, 40))}`);
  if (kind === "number" && !Number.isSafeInteger(value)) throw bad(`${name} must be an integer`);
  if (kind !== "text") return;
  if (typeof value !== "string" || value.includes("\0") || !value.isWellFormed())
    throw bad(`${name} must be a text without zero bytes`);
}

/** Throws for a row that no operation would have made; handed in, as commands know no rules of operations. */
export type RequireRow = (table: ExportedTable, row: Record<string, unknown>) => void;

/** How far the log of each environment was seen, by its id in the file. */
interface SeenLog {
  isListed: boolean;
  position: number;
  /** The first position after the last gap. */
  from: number;
  hasHead: boolean;
}

/** Reads the lines of a file one after the other, and refuses what no export has. */
export class LineReader {
  readonly #logs: Map<string, SeenLog>;
  readonly #ends: Map<string, number>;
  readonly #requireRow: RequireRow;

  constructor(meta: ExportMeta, requireRow: RequireRow) {
    this.#requireRow = requireRow;
    this.#ends = new Map(meta.environments.map(({ id, position }) => [id, position]));
    this.#logs = new Map(
      meta.environments.map(({ id }) => [id, { isListed: false, position: 0, from: 1, hasHead: false }]),
    );
  }

  /** The table and the row of a line; `number` is its place in the file. */
  read(value: unknown, number: number): { table: ExportedTable; environmentId: string; row: ImportedRow } {
    const { section, kind, environment_id: environmentId = "", row } = (value ?? {}) as Partial<ExportLine>;
    const bad = (rule: string) => new BadFile(`line ${number}: ${rule}`);
    const table = tableOf.get(`${section}.${kind}`);
    if (!table) throw bad("unknown section or kind");
    if (typeof row !== "object" || row === null || Array.isArray(row)) throw bad("row must be an object");
    const isOfOrg = table.of === "org";
    if (isOfOrg ? environmentId !== "" : !this.#ends.has(environmentId))
      throw bad("environment_id must be one of the first line's, and stand in rows of environments alone");
    const read: ImportedRow = {};
    for (const name of Object.keys(table.columns)) read[name] = null;
    for (const [name, own] of Object.entries(row)) requireKind(table, name, own, bad);
    try {
      this.#requireRow(table, row);
    } catch (error) {
      throw error instanceof Error ? bad(error.message) : error;
    }
    for (const [name, own] of Object.entries(row))
      read[name] = table.columns[name] === "json" ? JSON.stringify(own) : (own as string | number);
    for (const name of table.key)
      if (name !== "environment_id" && read[name] === null) throw bad(`${name} is missing`);
    if (table.table === "environments") this.#list(read.id as string, bad);
    if (table.table === "events") this.#follow(environmentId, read.position as number, bad);
    if (table.table === "heads") this.#close(environmentId, read, bad);
    return { table, environmentId, row: read };
  }

  /** Every environment of the first line must be there, with the end of its log. */
  requireLogs(): void {
    for (const [id, { isListed, hasHead }] of this.#logs)
      if (!isListed || !hasHead) throw new BadFile(`the log of environment ${id} has no end in the file`);
  }

  #list(id: string, bad: (rule: string) => BadFile): void {
    const log = this.#logs.get(id);
    if (!log || log.isListed) throw bad("id must be one of the first line's environments, once");
    log.isListed = true;
  }

  #follow(environmentId: string, position: number, bad: (rule: string) => BadFile): void {
    const log = this.#logs.get(environmentId)!;
    if (position <= log.position || position > this.#ends.get(environmentId)!)
      throw bad("position must grow, and not be beyond the log's end");
    if (position !== log.position + 1) log.from = position;
    log.position = position;
  }

  #close(environmentId: string, row: ImportedRow, bad: (rule: string) => BadFile): void {
    const log = this.#logs.get(environmentId)!;
    const end = this.#ends.get(environmentId)!;
    const floor = (row.retention_floor as number) ?? 0;
    if (log.hasHead || row.position !== end || floor < 0 || floor > end + 1)
      throw bad("the end of the log is not that of the first line");
    const from = log.position === end ? log.from : end + 1;
    if (from > Math.max(1, floor)) throw bad(`the log has a gap above its floor ${floor}`);
    log.hasHead = true;
  }
}

/** A row with the ids of the new org. */
export function movedRow(
  { ids }: ExportedTable,
  row: ImportedRow,
  idOf: ReturnType<typeof idsFor>,
  number: number,
): ImportedRow {
  const moved = { ...row };
  for (const name of ids) {
    const id = row[name];
    if (typeof id !== "string" || id === "") continue;
    const other = idOf(id);
    if (other === undefined) throw new BadFile(`line ${number}: ${name} is no id of ours`);
    moved[name] = other;
  }
  return moved;
}
