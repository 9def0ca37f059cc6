import type { Log } from "../../../kit/log.ts";
import { auditFlushRowsMax, auditWaitingMax } from "./limits.ts";
import type { AuditEntry } from "./rules.ts";
import type { Spool } from "./spool.ts";

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
