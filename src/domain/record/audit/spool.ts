import {
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import type { Instant } from "../../../kit/clock.ts";
import type { Log } from "../../../kit/log.ts";
import { auditFlushRowsMax, auditSpoolBytesMax, auditWaitingMax } from "./limits.ts";
import { type AuditEntry, lineMac, sameText } from "./rules.ts";

/** Files of rows that are not in the store yet: they survive this process, and an outage of the store. */
export type Spool = ReturnType<typeof openSpool>;

export interface SpoolDeps {
  folder: string;
  /** Unique to this process: the names of its files begin with it. */
  stamp: string;
  /** Signs the lines. */
  secrets: { current(): { id: string; secret: string }; find(id: string): string | undefined };
  /** A line was cut short, or its signature is wrong: the row is lost. */
  onLost: (file: string) => void;
}

const suffix = ".audit";

export function openSpool({ folder, stamp, secrets, onLost }: SpoolDeps) {
  let current: { file: string; handle: number } | undefined;
  let count = 0;
  const bytesOf = new Map<string, number>();
  const nextFile = () => join(folder, `${stamp}-${++count}${suffix}`);

  function open(): { file: string; handle: number } {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const file = nextFile();
    return { file, handle: openSync(file, "ax", 0o600) };
  }

  function cut(): void {
    if (current) closeSync(current.handle);
    current = undefined;
  }

  function bytes(): number {
    let all = 0;
    for (const own of bytesOf.values()) all += own;
    return all;
  }

  return {
    /** The file that the row went to; throws when it cannot be written or the spool is full. */
    append(entry: AuditEntry): string {
      const { id, secret } = secrets.current();
      const text = JSON.stringify(entry);
      const line = Buffer.from(`${id} ${lineMac(secret, text)} ${text}\n`);
      if (bytes() + line.length > auditSpoolBytesMax) throw new Error("the audit spool is full");
      current ??= open();
      const { file, handle } = current;
      let written = 0;
      while (written < line.length) written += writeSync(handle, line, written);
      bytesOf.set(file, (bytesOf.get(file) ?? 0) + line.length);
      return file;
    },

    /** Begins another file for the next rows. */
    cut,

    /** Rows of a file, without lines that were cut short or have a wrong signature; none when it is gone. */
    read(file: string): AuditEntry[] {
      let text: string;
      try {
        text = readFileSync(file, "utf8");
      } catch (error) {
        if ((error as { code?: string }).code === "ENOENT") return [];
        throw error;
      }
      const lines = text.split("\n").filter((line) => line !== "");
      return lines.flatMap((line) => {
        const [, id, mac, json] = /^(\S+) (\S+) (.+)$/.exec(line) ?? [];
        const secret = id === undefined ? undefined : secrets.find(id);
        if (secret !== undefined && sameText(lineMac(secret, json!), mac!))
          return JSON.parse(json!) as AuditEntry;
        onLost(file);
        return [];
      });
    },

    forget(file: string) {
      bytesOf.delete(file);
      rmSync(file, { force: true });
    },

    /** Takes over files that another process left and has not touched since then. */
    adopt(untouchedSince: Instant): string[] {
      let names: string[];
      try {
        names = readdirSync(folder);
      } catch {
        return [];
      }
      return names.sort().flatMap((name) => {
        if (!name.endsWith(suffix) || name.startsWith(`${stamp}-`)) return [];
        const own = nextFile();
        try {
          const found = statSync(join(folder, name));
          if (found.mtimeMs > untouchedSince) return [];
          // Several processes may try: the rename succeeds for one.
          renameSync(join(folder, name), own);
          bytesOf.set(own, found.size);
          return own;
        } catch {
          return [];
        }
      });
    },

    /** Leaves no empty folder behind. */
    close() {
      cut();
      try {
        rmdirSync(folder);
      } catch {
        // Not empty, or never made.
      }
    },
  };
}

/** Rows that go to the store in one transaction. */
export interface Batch {
  files: Set<string>;
  /** Undefined when only the spool files hold the rows. */
  entries: AuditEntry[] | undefined;
  count: number;
  tries: number;
}

const newBatch = (): Batch => ({ files: new Set(), entries: [], count: 0, tries: 0 });

/**
 * The rows between a call and the store, in the order of the calls: in spool files, and in memory while there
 * is room.
 */
export class Batches {
  readonly #spool: Spool;
  readonly #log: Log;
  #gathering: Batch = newBatch();
  readonly #closed: Batch[] = [];
  #inMemory = 0;
  #spoolFails = false;

  constructor(deps: { spool: Spool; log: Log }) {
    this.#spool = deps.spool;
    this.#log = deps.log;
  }

  get spoolFails(): boolean {
    return this.#spoolFails;
  }

  /** Rows that wait for the store. */
  get waiting(): number {
    return this.#closed.reduce((sum, batch) => sum + batch.count, this.#gathering.count);
  }

  /** The batch that is written next. */
  first(): Batch | undefined {
    return this.#closed[0];
  }

  /** False when the row is lost: the spool failed and the memory is full. */
  add(entry: AuditEntry): boolean {
    const isFull = this.#inMemory >= auditWaitingMax;
    // A batch is in memory as a whole or not at all.
    if (isFull && this.#gathering.entries !== undefined) this.close();
    const batch = this.#gathering;
    if (batch.count === 0) batch.entries = isFull ? undefined : [];
    const file = this.#spoolFileOf(entry);
    if (file !== undefined) batch.files.add(file);
    if (batch.entries) {
      batch.entries.push(entry);
      this.#inMemory++;
    } else if (file === undefined) return false;
    batch.count++;
    if (batch.count >= auditFlushRowsMax) this.close();
    return true;
  }

  #spoolFileOf(entry: AuditEntry): string | undefined {
    try {
      const file = this.#spool.append(entry);
      this.#spoolFails = false;
      return file;
    } catch (error) {
      if (!this.#spoolFails) this.#log.error("audit.spool_failed", { error });
      this.#spoolFails = true;
      return undefined;
    }
  }

  close(): void {
    if (this.#gathering.count === 0) return;
    this.#spool.cut();
    this.#closed.push(this.#gathering);
    this.#gathering = newBatch();
  }

  /** Files that a process left behind, untouched since that time. */
  adoptLeftBefore(time: number): void {
    for (const file of this.#spool.adopt(time))
      this.#closed.push({ files: new Set([file]), entries: undefined, count: 1, tries: 0 });
  }

  entriesOf(batch: Batch): readonly AuditEntry[] {
    return batch.entries ?? [...batch.files].flatMap(this.#spool.read);
  }

  /** The first batch is in the store: its files go. */
  dropFirst(): void {
    const batch = this.#closed[0];
    if (!batch) return;
    for (const file of batch.files) this.#spool.forget(file);
    this.#inMemory -= batch.entries?.length ?? 0;
    this.#closed.shift();
  }
}
