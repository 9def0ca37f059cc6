import { columnsOf } from "../../../../kit/columns.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Store } from "../../../../store/store.ts";
import type { ProjectionKey } from "../rows.ts";
import type { ProjectionMode, ProjectionStatus } from "../rules.ts";

export interface WaitTarget extends ProjectionKey {
  /** Undefined: the whole projection. */
  partition: string | undefined;
}

/** How far a projection, and one of its partitions, is; `gone` once it is deleted. */
export type WaitProgress =
  | "gone"
  | {
      status: ProjectionStatus;
      mode: ProjectionMode;
      error: string | null;
      cursor: number;
      isRebuilding: boolean;
      /** 0 where the partition has no row. */
      partitionPosition: number;
      partitionError: string | null;
    };

interface ProgressRow extends ProjectionKey {
  partition_key: string;
  status: ProjectionStatus;
  mode: ProjectionMode;
  error_message: string | null;
  cursor_position: number;
  building: number;
  last_position: number | null;
  partition_error: string | null;
}

/** Empty is no key of a partition: it means the global one in requests. */
const noPartition = "";

export const partitionText = ({ environment_id, name, partition = noPartition }: WaitTarget): string =>
  JSON.stringify([environment_id, name, partition]);

/** By the text of the target; at most `projectionLookMax` at once. Deleted projections are left out. */
export async function progressOf(
  store: Pick<Store, "all" | "seams">,
  targets: readonly WaitTarget[],
): Promise<Map<string, { progress: WaitProgress; text: string }>> {
  const found = new Map<string, { progress: WaitProgress; text: string }>();
  const rows =
    await store.all<ProgressRow>(sql`SELECT p.environment_id, p.name, i.partition_key, p.status, p.mode,
        p.error_message, g.cursor_position, s.last_position, s.error_message AS partition_error,
        (SELECT count(*) FROM projection_generations b WHERE b.environment_id = p.environment_id
          AND b.name = p.name AND b.generation > p.generation AND b.dropped_at IS NULL) AS building
      FROM ${store.seams.rowsFrom("i", {
        ...columnsOf(targets, { text: "environment_id name" }),
        partition_key: column.text(targets.map((one) => one.partition ?? noPartition)),
      })}
        CROSS JOIN projections p
        JOIN projection_generations g ON g.environment_id = p.environment_id AND g.name = p.name
          AND g.generation = p.generation
        LEFT JOIN projection_states s ON s.environment_id = p.environment_id AND s.name = p.name
          AND s.generation = p.generation AND s.partition_key = i.partition_key
      WHERE p.environment_id = i.environment_id AND p.name = i.name`);
  for (const row of rows) {
    const progress: WaitProgress = {
      ...{ status: row.status, mode: row.mode, error: row.error_message },
      ...{ cursor: row.cursor_position, isRebuilding: row.building > 0 },
      ...{ partitionPosition: row.last_position ?? 0, partitionError: row.partition_error },
    };
    const text = JSON.stringify(progress);
    found.set(partitionText({ ...row, partition: row.partition_key }), { progress, text });
  }
  return found;
}
