import { sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";

/**
 * Forgets what runs wait for, in the transaction that moves them to another state by a person's will. What
 * they have seen stays as it is: a wait that is yielded again looks at all that was logged since.
 */
export async function dropWaits(session: Session, runIds: readonly string[]): Promise<void> {
  if (runIds.length === 0) return;
  await session.run(sql`DELETE FROM waits WHERE kind = 'wait' AND run_id IN ${sql.list(runIds)}`);
  await session.run(sql`DELETE FROM invocations WHERE parent_run_id IN ${sql.list(runIds)}`);
}
