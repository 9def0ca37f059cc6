import { Database } from "bun:sqlite";
import type { Figures } from "./figures.ts";

/** Bytes that a store takes now, and bytes that PostgreSQL has written to its log so far. */
export interface StoreSize {
  stored: number;
  wal?: number;
}

/** `place` is the URL of a database, or the file of libSQL. */
export async function sizeOf(place: string): Promise<StoreSize> {
  if (!place.includes("://")) {
    const file = new Database(place, { readonly: true });
    try {
      const pragma = (name: string) =>
        Object.values(file.query(`PRAGMA ${name}`).get() as object)[0] as number;
      return { stored: pragma("page_count") * pragma("page_size") };
    } finally {
      file.close();
    }
  }
  const sql = new Bun.SQL(place, { max: 1 });
  try {
    const [row] = await sql.unsafe(`SELECT pg_database_size(current_database()) AS stored,
      pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS wal`);
    return { stored: Number(row.stored), wal: Number(row.wal) };
  } finally {
    await sql.close();
  }
}

/** What each of `count` runs has left between two looks, in kB: the fewer there were, the more it is the size of a page. */
export const growthOf = (before: StoreSize, after: StoreSize, count: number): Figures => ({
  storedKb: (after.stored - before.stored) / count / 1000,
  ...(after.wal !== undefined && { walKb: (after.wal - before.wal!) / count / 1000 }),
});
