import type { CommitReportsInput } from "../../src/domain/engine/runs/execution/commit-reports.ts";
import { column, render, type Sql, sql } from "../../src/kit/sql.ts";
import type { Plant } from "./world.ts";

const textOf = (query: Sql) => render(query, () => "?", "any").text;

/** Reports are taken whatever fence they bring, as if it were not checked. */
const fence: Plant = (store, plain) => ({
  ...store,
  async flush(flush, input) {
    if (flush.name !== "runs.settle") return store.flush(flush, input);
    const { changes, ...more } = input as unknown as CommitReportsInput;
    const held = await plain.all<{ run_id: string; execution_seq: number; lease_hash: string | null }>(
      sql`SELECT run_id, execution_seq, lease_hash FROM executions JOIN ${plain.seams.rowsFrom("wanted", {
        id: column.text(changes.map((one) => one.runId)),
      })} ON wanted.id = executions.run_id`,
    );
    const rows = new Map(held.map((row) => [row.run_id, row]));
    const opened: CommitReportsInput = {
      ...more,
      changes: changes.map((one) => {
        const row = rows.get(one.runId);
        return row ? { ...one, executionSeq: row.execution_seq, leaseHash: row.lease_hash ?? "" } : one;
      }),
    };
    return store.flush(flush, opened as typeof input);
  },
});

/** What is due loses its timer in a transaction of its own, before the one that has its effect. */
const timer: Plant = (store, plain) => ({
  ...store,
  async write(work) {
    let taken: string[] = [];
    let looks = false;
    // A first look, undone again, tells whether this is the write that moves what is due, and what.
    await plain
      .write(async (session) => {
        await work({
          ...session,
          async all(query) {
            if (/FROM executions d WHERE d\.state <> 'queued' AND .*d\.wake_at <=/.test(textOf(query))) {
              looks = true;
              taken = (await session.all<{ run_id: string }>(query)).map((row) => row.run_id);
            }
            return session.all(query);
          },
        });
        throw new Error("only a look");
      })
      .catch(() => {});
    if (!looks || taken.length === 0) return store.write(work);
    const ids = plain.seams.rowsFrom("gone", { id: column.text(taken) });
    const rows = await plain.all<{ run_id: string; wake_at: number }>(
      sql`SELECT run_id, wake_at FROM executions JOIN ${ids} ON gone.id = executions.run_id`,
    );
    const never = Number.MAX_SAFE_INTEGER;
    await plain.write((session) =>
      session.run(sql`UPDATE executions SET wake_at = ${never} WHERE run_id IN (SELECT id FROM ${ids})`),
    );
    return store.write(async (session) => {
      for (const { run_id, wake_at } of rows)
        await session.run(sql`UPDATE executions SET wake_at = ${wake_at}
            WHERE run_id = ${run_id} AND wake_at = ${never}`);
      return work(session);
    });
  },
});

/** Waits are registered from the head of the log on, as if the position that their run has seen were not known. */
const position: Plant = (store, plain) => ({
  ...store,
  async flush(flush, input) {
    const answer = await store.flush(flush, input);
    if (flush.name === "runs.settle")
      await plain.write((session) =>
        session.run(sql`UPDATE waits SET from_position = (
            SELECT h.position FROM heads h WHERE h.environment_id = waits.environment_id)
          WHERE kind = 'wait' AND fresh_at IS NOT NULL`),
      );
    return answer;
  },
});

/** The cursor of a projection goes along with what is delivered, as if that were saved. */
const cursor: Plant = (store, plain) => ({
  ...store,
  async write(work) {
    let gives = false;
    const result = await store.write((session) =>
      work({
        ...session,
        run(query) {
          gives ||= /^INSERT INTO projection_pending/.test(textOf(query));
          return session.run(query);
        },
      }),
    );
    if (gives)
      await plain.write((session) =>
        session.run(
          sql`UPDATE projection_generations SET cursor_position = delivered WHERE dropped_at IS NULL`,
        ),
      );
    return result;
  },
});

/** A delivery does not leave out what a partition has folded. */
const folded: Plant = (store) => ({
  ...store,
  all: (query) =>
    /^SELECT s\.partition_key, s\.last_position/.test(textOf(query)) ? Promise.resolve([]) : store.all(query),
});

export const plants: Record<string, Plant> = { fence, timer, position, cursor, folded };
/** Those that show only where projections are folded; the others are looked for in worlds without. */
export const plantsOfFolds: ReadonlySet<string> = new Set(["cursor", "folded"]);
