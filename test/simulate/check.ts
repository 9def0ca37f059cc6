import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { checkEverySlot, checkLedgers, checkResults, type RunRow } from "../support/engine-checkers.ts";
import { childInput, inputOf, type Program, resultOf } from "../support/run-program.ts";
import type { Burst } from "./callers.ts";
import type { SteeredRun } from "./people.ts";

/** A start that a node said yes to. */
export interface Started {
  program: Program;
  input: string;
  runIds: readonly string[];
}

export interface Lived {
  store: Store;
  started: readonly Started[];
  bursts: readonly Burst[];
  /** By run. */
  steered: ReadonlyMap<string, SteeredRun>;
  programs: ReadonlyMap<string, Program>;
  environmentId: string;
  /** What a clock that is right shows. */
  now: number;
}

/** Clocks are wrong by at most so much. */
const skewMs = 200;

/** Every promise that can be read from the rows once all is over; answers what does not hold. */
export async function check(world: Lived): Promise<string[]> {
  const { store, started, programs, environmentId, steered } = world;
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
  const ending = new Map([...programs].filter(([, one]) => one.everySeconds === undefined));
  faults.push(...(await checkResults(store, { programs: ending, steered })));
  faults.push(
    ...(await checkCron(world, runs)),
    ...(await checkBursts(world)),
    ...(await checkSteering(world)),
  );

  // A run that got past a line has the child that the line started.
  const inputs = new Set(runs.map((run) => `${run.function_id} ${inputOf(run.data)}`));
  for (const run of runs)
    for (const line of run.status === "completed" ? programs.get(run.function_id)!.lines : []) {
      if (line.kind !== "invoke") continue;
      const child = `${line.child} ${childInput(inputOf(run.data), line.name)}`;
      if (!inputs.has(child)) faults.push(`${run.id} is completed and never started ${child}`);
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

/** Slots have one run each, the ledger counts them all, and a schedule is not left behind. */
async function checkCron({ store, programs, now }: Lived, runs: readonly RunRow[]): Promise<string[]> {
  const crons = [...programs.values()].filter((one) => one.everySeconds !== undefined);
  const faults = await checkLedgers(store);
  for (const program of crons) {
    const { id, everySeconds = 0 } = program;
    faults.push(...(await checkEverySlot(store, id, everySeconds)));
    const schedules = await store.all<{ next_at: number | null }>(
      sql`SELECT next_at FROM schedules WHERE function_id = ${id}`,
    );
    const [schedule] = schedules;
    if (schedules.length !== 1) faults.push(`${id} has ${schedules.length} schedules`);
    else if (schedule!.next_at === null || schedule!.next_at < now - cronBehindMsMax)
      faults.push(`the next slot of ${id} is ${schedule!.next_at} at ${now}`);
    const slots = new Set<string>();
    for (const run of runs) {
      if (run.function_id !== id) continue;
      const slot = inputOf(run.data);
      if (slots.has(slot)) faults.push(`slot ${slot} of ${id} has two runs`);
      slots.add(slot);
      if (Date.parse(slot) % (everySeconds * 1_000) !== 0) faults.push(`${id} has no slot ${slot}`);
      const { status } = resultOf(program, slot, programs);
      if (run.status !== "active" && run.status !== status)
        faults.push(`${run.id} (${id} ${slot}) is ${run.status}: ${run.error}`);
    }
  }
  return faults;
}

/** A frozen leader is replaced, and what the store refuses is tried again, long before this. */
const cronBehindMsMax = 10_000;

/**
 * A burst's events, in the order of the log, fall into groups that each end with the event that a run started from; none
 * starts before its group was quiet for the period, or was waited for as long as may be, and none is left over.
 */
async function checkBursts({ store, bursts, programs }: Lived): Promise<string[]> {
  const faults: string[] = [];
  for (const { functionId, name, eventIds, cancelledAt, mayBeCancelled } of bursts) {
    const { periodMs, maxWaitMs = Number.POSITIVE_INFINITY } = programs.get(functionId)!.debounce!;
    const events = await store.all<{ id: string; at: number; fired_at: number | null }>(
      sql`SELECT e.id, e.at, r.created_at AS fired_at FROM events e
        LEFT JOIN runs r ON r.event_id = e.id AND r.function_id = ${functionId}
      WHERE e.data LIKE ${`%"burst":"${name}"%`} ORDER BY e.position`,
    );
    if (events.map(({ id }) => id).join() !== eventIds.join())
      faults.push(`${name}: acked ${eventIds}, has ${events.map(({ id }) => id)}`);
    let firstAt: number | undefined;
    for (const { id, at, fired_at: firedAt } of events) {
      firstAt ??= at;
      if (firedAt === null) continue;
      const due = Math.min(at + periodMs, firstAt + maxWaitMs);
      if (firedAt < due) faults.push(`${name}: ${id} was due at ${due} and started its run at ${firedAt}`);
      if (cancelledAt !== undefined && firedAt > cancelledAt + skewMs)
        faults.push(`${name} was cancelled at ${cancelledAt} and started a run at ${firedAt}`);
      firstAt = undefined;
    }
    if (firstAt !== undefined && !mayBeCancelled) faults.push(`the last event of ${name} started nothing`);
  }
  return faults;
}

/** What must not follow a pause but by the hand of a person, or of one who ends the run. */
const moves = new Set(["run.started", "run.woken", "run.retried", "run.completed"]);

/** A held run stands still until it is let go, and what a person wrote over a step stays written. */
async function checkSteering({ store, steered }: Lived): Promise<string[]> {
  const faults: string[] = [];
  for (const [runId, { given, begunAgain }] of steered) {
    const history = await store.all<{ type: string; sequence: number }>(
      sql`SELECT type, sequence FROM run_history WHERE run_id = ${runId} ORDER BY sequence`,
    );
    let held = false;
    for (const { type, sequence } of history) {
      if (type === "run.paused" || type === "run.held") held = true;
      // A held run that is cancelled is undone.
      else if (type === "run.resumed" || type === "run.compensating") held = false;
      else if (held && moves.has(type)) faults.push(`${runId} was held and has ${type} at ${sequence}`);
    }
    if (begunAgain) continue;
    for (const [stepId, output] of given) {
      const step = await store.one<{ output: string | null; patched_at: number | null }>(
        sql`SELECT output, patched_at FROM steps WHERE run_id = ${runId} AND step_id = ${stepId}`,
      );
      if (step?.output !== output || step.patched_at === null)
        faults.push(`${stepId} was given ${output} and has ${step?.output}`);
    }
  }
  return faults;
}
