/** A page of a list: what follows begins at `next`. */
export interface RowsPage<Row> {
  rows: readonly Row[];
  next: string | undefined;
}

/** The page at an offset, where a server counts instead of naming a cursor. */
export function offsetPage<Row>(cursor: string, rows: readonly Row[], total: number): RowsPage<Row> {
  const end = Number(cursor || 0) + rows.length;
  return { rows, next: rows.length > 0 && end < total ? `${end}` : undefined };
}
