import type { Caller } from "./server.ts";

export interface Assignment {
  job_id: string;
  run_id: string;
  function_id: string;
  execution_seq: number;
  lease_token: string;
  step_sequence_base: number;
  attempt: number;
  completed_steps: { step_id: string; name: string; status: string; output: unknown; error?: unknown }[];
  event: Record<string, unknown>;
}

/** A worker that speaks the REST protocol by hand. */
export function pullWorker(server: Pick<Caller, "api">, id: string, sdk = "0.41.0") {
  const api = (path: string, body?: unknown, method = "PUT") =>
    server.api(`/api/v1/workers/${id}${path}`, { method, ...(body !== undefined && { body }) });
  const report = (job: Assignment, body: object) =>
    api(`/jobs/${job.job_id}`, {
      execution_seq: job.execution_seq,
      lease_token: job.lease_token,
      ...body,
    });
  return {
    register: (...functionIds: string[]) =>
      api("/register", { function_ids: functionIds, version: { sdk, runtime: "test" } }, "POST"),
    async poll(available = 1): Promise<Assignment[]> {
      const { status, body } = await api(`/jobs?available=${available}`, undefined, "GET");
      return status === 204 ? [] : body.jobs;
    },
    report,
    /** Yields a step; its id follows from its name. */
    leave: (job: Assignment, name: string, yielded: object) =>
      report(job, { status: "yielded", yield: { step_id: stepIdOf(job, name), ...yielded } }),
    complete: (job: Assignment, output: unknown = null) => report(job, { status: "completed", output }),
  };
}

export type PullWorker = ReturnType<typeof pullWorker>;

export const stepIdOf = (job: Pick<Assignment, "run_id">, name: string) => `${job.run_id}:${name}:0`;
