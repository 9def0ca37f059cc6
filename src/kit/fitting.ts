/** Bytes of payloads that a loop reads at once. */
const payloadsAtOnceBytesMax = 8 * 1024 * 1024;

/**
 * Those of the rows, one at least, whose payloads are read now; the others stay due. The first row of each
 * environment comes before the second of any: large payloads of one environment do not delay another.
 */
export function fitting<Row extends { environment_id: string }>(
  rows: readonly Row[],
  bytesOf: (row: Row) => number,
  bytesMax = payloadsAtOnceBytesMax,
): Row[] {
  const counts = new Map<string, number>();
  const ranked = rows.map((row) => {
    const rank = counts.get(row.environment_id) ?? 0;
    counts.set(row.environment_id, rank + 1);
    return { row, rank };
  });
  ranked.sort((one, other) => one.rank - other.rank);
  let left = bytesMax;
  return ranked.flatMap(({ row }) => {
    if (left <= 0) return [];
    left -= bytesOf(row);
    return row;
  });
}
