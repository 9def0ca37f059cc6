import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import { plant } from "../support/plant.ts";

/** A statement of more rows may take longer than the store lets one. */
const rowsMax = 500_000;

/**
 * So many runs of three steps that ended in the hour before, with all their rows, and the room that their executions had. Of
 * those the first `old` ended ten days earlier, and the others are of the hour to come: no retention reaches them.
 */
export async function grow(
  place: { databaseUrl?: string; file?: string },
  count: number,
  old = 0,
): Promise<void> {
  const store = await openStore({ ...place, clock: systemClock(), log: silentLog, poolSize: 1 });
  const pile = async (table: string, rows: number, values: Record<string, string>) => {
    for (let first = 1; first <= rows; first += rowsMax)
      await plant(store, table, Math.min(rowsMax, rows - first + 1), values, first);
  };
  const now = Date.now();
  const ended = `${now} - 3600000 + n * 3600000 / ${count}`;
  const at = old === 0 ? ended : `${ended} + CASE WHEN n <= ${old} THEN -864000000 ELSE 3600000 END`;
  // In the order of their times, as ids are, and before every id of today.
  const id = (kind: string, n = "n") => `'${kind}_0' || substr(CAST(100000000 + ${n} AS TEXT), 2)`;
  const own = { environment_id: "'env_default'" };
  const ofFunction = { function_id: "'bench-three-steps'", function_version: "1", max_attempts: "3" };
  const data = `'{"at":1,"customer":"c-1042","total":42.5,"note":"bench"}'`;
  const hash = "'3f786850e387550fdab836ed7e6dc881de23001b' || n";
  // Up to 0, where the head of a new log stands.
  await pile("events", count, {
    ...{ ...own, position: `n - ${count}`, id: id("evt"), name: "'bench.run'", version: "1", data, at },
    source: "'api'",
  });
  await pile("runs", count, {
    ...{
      ...own,
      ...ofFunction,
      id: id("run"),
      event_id: id("evt"),
      event_name: "'bench.run'",
      mode: "'pull'",
    },
    ...{ status: "'completed'", attempt: "1", created_at: at, updated_at: at, started_at: at, ended_at: at },
    ...{ execution_seq: "1", lease_hash: hash, worker_id: "'worker_1'", output: `'{"result":3}'` },
  });
  const third = "(n + 2) / 3";
  await pile("steps", 3 * count, {
    ...{
      ...own,
      run_id: id("run", `(${third})`),
      step_id: `'step:' || (n % 3)`,
      name: "'one'",
      type: "'run'",
    },
    ...{ sequence: "n % 3", status: "'completed'", output: "'1'", attempt: "1" },
  });
  await pile("run_history", 3 * count, {
    ...{ ...own, run_id: id("run", `(${third})`), sequence: "n % 3", type: "'run.started'" },
    detail: `'{"attempt":1,"execution_seq":1}'`,
  });
  const before = Math.min(count, 100_000);
  await pile("executions", before, {
    ...{ ...own, ...ofFunction, run_id: id("run"), state: "'queued'", wake_at: at, attempt: "1" },
  });
  await store.write((session) =>
    session.run(
      sql`UPDATE executions SET state = 'leased', wake_at = wake_at + 30000, lease_hash = 'x', worker_id = 'w'`,
    ),
  );
  await store.write((session) => session.run(sql`DELETE FROM executions`));
  await store.close();
}
