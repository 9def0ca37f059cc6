import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import type { RunRow } from "../support/engine-checkers.ts";
import { type Program, resultOf } from "../support/run-program.ts";

/** A start that a node said yes to. */
export interface Started {
  program: Program;
  input: string;
  runIds: readonly string[];
}

/** Every promise that can be read from the rows once all is over; answers what does not hold. */
export async function check(world: {
  store: Store;
  started: readonly Started[];
  programs: ReadonlyMap<string, Program>;
  environmentId: string;
}): Promise<string[]> {
  const { store, started, programs, environmentId } = world;
  const faults: string[] = [];
  const runs =
    await store.all<RunRow>(sql`SELECT r.id, r.function_id, r.status, r.output, r.error, r.parent_run_id, e.data
    FROM runs r JOIN events e ON e.id = r.event_id WHERE r.environment_id = ${environmentId}`);
  const byId = new Map(runs.map((run) => [run.id, run]));

  // Every accepted trigger has its run.
  for (const { program, input, runIds } of started) {
    if (runIds.length !== 1) faults.push(`${input} of ${program.id} started ${runIds.length} runs`);
    for (const id of runIds)
      if (!byId.has(id)) faults.push(`${id} of ${input} was accepted and is not there`);
  }

  // Every run ends with the program's known result, and no start has two.
  const inputs = new Set<string>();
  for (const run of runs) {
    const { input } = JSON.parse(run.data) as { input: string };
    const key = `${run.function_id} ${input}`;
    if (inputs.has(key)) faults.push(`${key} runs twice`);
    inputs.add(key);
    const wanted = resultOf(programs.get(run.function_id)!, input, programs);
    if (run.status !== wanted.status)
      faults.push(`${run.id} (${key}) is ${run.status} instead of ${wanted.status}: ${run.error}`);
    else if (wanted.status === "completed" && run.output !== JSON.stringify(wanted.output))
      faults.push(`${run.id} (${key}) answers ${run.output} instead of ${JSON.stringify(wanted.output)}`);
  }

  // What is not over has an execution, and the other way round.
  const [lost] = await store.all<{ count: number }>(sql`SELECT count(*) AS count FROM runs
    WHERE status = 'active' AND id NOT IN (SELECT run_id FROM executions)`);
  if (lost!.count > 0) faults.push(`${lost!.count} active runs without an execution`);

  // Fences only grow, and history has no holes.
  const history = await store.all<{ run_id: string; sequence: number; type: string; detail: string }>(
    sql`SELECT run_id, sequence, type, detail FROM run_history ORDER BY run_id, sequence`,
  );
  let last = { run: "", sequence: 0, fence: 0 };
  for (const { run_id, sequence, type, detail } of history) {
    if (run_id !== last.run) last = { run: run_id, sequence: 0, fence: 0 };
    if (sequence !== last.sequence + 1)
      faults.push(`history of ${run_id} goes from ${last.sequence} to ${sequence}`);
    last.sequence = sequence;
    if (type !== "run.started") continue;
    const { execution_seq: fence } = JSON.parse(detail) as { execution_seq: number };
    if (fence <= last.fence) faults.push(`fence of ${run_id} goes from ${last.fence} to ${fence}`);
    last.fence = fence;
  }

  // Positions have no gaps.
  const [log] = await store.all<{ count: number; top: number; head: number }>(
    sql`SELECT count(*) AS count, COALESCE(MAX(position), 0) AS top,
      (SELECT position FROM heads WHERE environment_id = ${environmentId}) AS head
    FROM events WHERE environment_id = ${environmentId}`,
  );
  if (log!.count !== log!.top || log!.top !== log!.head)
    faults.push(`the log has ${log!.count} events up to ${log!.top} and its head is ${log!.head}`);
  return faults;
}
