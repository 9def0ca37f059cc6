import { sql } from "../../src/kit/sql.ts";
import { type Assignment, type PullWorker, pullWorker, stepIdOf } from "./pull-worker.ts";
import type { TestServer } from "./server.ts";
import { until } from "./until.ts";

/** A wait among those that a handler leaves open, by the name of its step; `after` names another step. */
export type Named = Record<string, unknown> & { name: string };

/** Leaves several waits of one run open, as a worker by hand, and sees what becomes of them. */
export function openWaitsOn(server: () => TestServer) {
  const rpc = async (method: string, body: unknown) => (await server().rpc("SvcService", method, body)).body;
  const emit = (event: string, data: unknown = {}) => rpc("Emit", { event, data });
  const steps = async (runId: string) => (await rpc("GetRunSteps", { runId })).steps ?? [];
  const statuses = async (runId: string) =>
    Object.fromEntries(
      (await steps(runId)).map(({ name, status }: { name: string; status: string }) => [
        name,
        status.replace("STEP_STATUS_", "").toLowerCase(),
      ]),
    );
  const rows = async (table: string, runId: string, column = "run_id") =>
    (
      await server().running.domain.store.all(
        sql`SELECT * FROM ${sql.raw(table)} WHERE ${sql.raw(column)} = ${runId}`,
      )
    ).length;
  const tick = (loop: string) => server().running.tick(loop);

  const begin = async (name: string, data: unknown = {}) => {
    await rpc("RegisterFunction", { id: name, triggers: [{ event: `${name}.asked` }] });
    const worker = pullWorker(server(), `w-${name}`);
    await worker.register(name);
    await emit(`${name}.asked`, data);
    const [job] = await worker.poll();
    return { worker, job: job!, runId: job!.run_id };
  };
  const named = (job: Assignment, { name, after, ...rest }: Named) => ({
    step_id: stepIdOf(job, name),
    ...(after !== undefined && { after: stepIdOf(job, after as string) }),
    ...rest,
  });
  const leave = (worker: PullWorker, job: Assignment, ...waits: Named[]) =>
    worker.report(job, {
      status: "yielded",
      yield: named(job, { type: "sleep", duration_ms: 1, ...waits[0]! }),
      yields: waits.map((one) => named(job, one)),
    });
  const sleep = (name: string, ms: number): Named => ({ name, type: "sleep", duration_ms: ms });
  const event = (name: string, filter: object, more: object = {}): Named => ({
    ...{ name, type: "wait_for_event", event_filter: filter },
    ...more,
  });
  const child = (name: string, id: string): Named => ({
    ...{ name, type: "invoke_function", function_id: id, invoke_timeout_ms: 60_000 },
  });
  const next = (worker: PullWorker) =>
    until(async () => (await worker.poll())[0], { about: "the run to go on" });
  const done = (job: Assignment) => job.completed_steps.map(({ name, status }) => [name, status]);
  return { rpc, emit, steps, statuses, rows, tick, begin, named, leave, sleep, event, child, next, done };
}
