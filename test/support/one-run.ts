import type { Answer, Caller } from "./server.ts";
import { until } from "./until.ts";

interface Assignment {
  job_id: string;
  run_id: string;
  execution_seq: number;
  lease_token: string;
}

export interface OneRun {
  runId: string;
  /** The answer to the report. */
  answer: Answer;
  /** Sends the report once more. */
  again(): Promise<Answer>;
}

/** One run of a function of its own, from its event to the report of a worker. */
export async function runOnce(
  server: Caller,
  name: string,
  report: Record<string, unknown> = { status: "completed", output: null },
): Promise<OneRun> {
  await server.rpc("SvcService", "RegisterFunction", { id: name, triggers: [{ event: `${name}.asked` }] });
  const worker = `/api/v1/workers/worker-of-${name}`;
  await server.api(`${worker}/register`, { body: { function_ids: [name], deployment: "build-7" } });
  await server.rpc("SvcService", "Emit", { event: `${name}.asked`, data: {} });
  const { job_id, run_id, execution_seq, lease_token } = await until(
    async () => (await server.api(`${worker}/jobs?available=1`)).body?.jobs[0] as Assignment | undefined,
    { about: "the job" },
  );
  const send = () =>
    server.api(`${worker}/jobs/${job_id}`, {
      method: "PUT",
      body: { execution_seq, lease_token, ...report },
    });
  return { runId: run_id, answer: await send(), again: send };
}
