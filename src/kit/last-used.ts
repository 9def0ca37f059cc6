import type { Clock, Instant } from "./clock.ts";
import { column, type Sql, type SqlArray, sql } from "./sql.ts";

const usedSliceMax = 500;

/** Ids with when each was used last. */
export type UsedSlice = readonly (readonly [string, Instant])[];

/**
 * Collects when things were last used, and writes it in slices: a write for each request would cost more than
 * the request.
 */
export class LastUsed {
  readonly #clock: Pick<Clock, "now">;
  readonly #write: (slice: UsedSlice) => Promise<unknown>;
  #usedAt = new Map<string, Instant>();

  constructor(clock: Pick<Clock, "now">, write: (slice: UsedSlice) => Promise<unknown>) {
    this.#clock = clock;
    this.#write = write;
  }

  note(id: string): void {
    this.#usedAt.set(id, this.#clock.now());
  }

  async write(): Promise<void> {
    if (this.#usedAt.size === 0) return;
    const noted = this.#usedAt;
    this.#usedAt = new Map();
    // Sorted: two nodes that write the same rows would otherwise wait for each other's.
    const sorted = [...noted].sort(([a], [b]) => (a < b ? -1 : 1));
    try {
      for (let from = 0; from < sorted.length; from += usedSliceMax)
        await this.#write(sorted.slice(from, from + usedSliceMax));
    } catch (error) {
      for (const [id, at] of noted) if (!this.#usedAt.has(id)) this.#usedAt.set(id, at);
      throw error;
    }
  }
}

/** What differs between the engines, as a store's sessions have it. */
interface LastUsedSeams {
  rowsFrom(alias: string, columns: Record<string, SqlArray>): Sql;
  skipLocked: Sql;
}

/**
 * Writes `last_used_at` of rows by `id`. Skips rows that another node is writing: its time is as recent. The
 * table is a name of ours, never a caller's.
 */
export function updateLastUsed(table: string, used: UsedSlice, { rowsFrom, skipLocked }: LastUsedSeams): Sql {
  const name = sql.raw(table);
  const ids = used.map(([id]) => id);
  const ats = used.map(([, at]) => at);
  return sql`WITH due AS (
      SELECT id FROM ${name} WHERE id IN (SELECT id FROM ${rowsFrom("named", { id: column.text(ids) })})
      ORDER BY id ${skipLocked})
    UPDATE ${name} SET last_used_at = used.at
    FROM ${rowsFrom("used", { id: column.text(ids), at: column.bigint(ats) })}
    WHERE ${name}.id = used.id AND ${name}.id IN (SELECT id FROM due)
      AND (${name}.last_used_at IS NULL OR ${name}.last_used_at < used.at)`;
}
