import type { Instant } from "../../../kit/clock.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/row.ts";

/** A finished rotation, to answer a repeated Idempotency-Key. */
export interface RotationRow
  extends RowOf<"rotations", "id, org_id, idempotency_key, request_hash, kind, rotated_at, actor_id"> {
  /** JSON array of node ids. */
  confirmed: string;
}

export const findRotation = (
  session: Session,
  orgId: string,
  key: string,
): Promise<RotationRow | undefined> =>
  session.one<RotationRow>(sql`SELECT id, org_id, idempotency_key, request_hash, kind, rotated_at, actor_id, confirmed
    FROM rotations WHERE org_id = ${orgId} AND idempotency_key = ${key}`);

/** False when another request used the same key and has ended. */
export async function insertRotation(session: Session, row: RotationRow): Promise<boolean> {
  const inserted = await session.run(sql`INSERT INTO rotations
      (id, org_id, idempotency_key, request_hash, kind, rotated_at, actor_id, confirmed)
    VALUES (${row.id}, ${row.org_id}, ${row.idempotency_key}, ${row.request_hash}, ${row.kind}, ${row.rotated_at},
      ${row.actor_id}, ${row.confirmed})
    ON CONFLICT (org_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING`);
  return inserted === 1;
}

export const confirmRotation = (session: Session, id: string, nodeIds: readonly string[]): Promise<number> =>
  session.run(sql`UPDATE rotations SET confirmed = ${JSON.stringify(nodeIds)} WHERE id = ${id}`);

export const purgeRotations = (session: Session, before: Instant): Promise<number> =>
  session.run(sql`DELETE FROM rotations WHERE rotated_at < ${before}`);
