import type { JobAssignment } from "../../src/gen/svc/v1/worker_pb.ts";
import { sql } from "../../src/kit/sql.ts";
import type { TestServer } from "../support/server.ts";
import {
  fenceOf,
  openStreamWorker,
  type Protocol,
  protocols,
  type StreamWorker,
  transportOf,
} from "../support/stream-worker.ts";
import { until } from "../support/until.ts";
import { type DoorIn, storedText } from "./doors-in.ts";
import { messageOf, type Probe } from "./doors-values.ts";

/** Deeper than any reader of messages goes, and so the end of a stream, as bytes that are no message are. */
const readableLevelsMax = 300;

interface Streamed {
  worker: StreamWorker;
  nextJob: () => Promise<JobAssignment>;
}

async function openStreamed(server: TestServer, protocol: Protocol, functionId: string): Promise<Streamed> {
  await server.rpc("SvcService", "RegisterFunction", { id: functionId, retry: { maxAttempts: 1 } });
  const at = { url: server.url, grpcUrl: server.running.grpcUrl };
  const worker = openStreamWorker(transportOf(protocol, at), { key: server.adminKey, id: `w-${functionId}` });
  await worker.register([functionId], { maxConcurrentJobs: 5, sdk: "0.41.0" });
  const seen = new Set<string>();
  return {
    worker,
    async nextJob() {
      await server.rpc("SvcService", "InvokeFunction", { functionId });
      for (;;) {
        const job = await worker.hear("job");
        // Of a job that came again another value has the run.
        if (seen.has(job.runId)) continue;
        seen.add(job.runId);
        worker.ack(job);
        return job;
      }
    },
  };
}

/**
 * How a run ended, whose job is answered by `say`: its output, or undefined when the result was refused. After a machine stood
 * still for seconds the job comes again under another lease, and is answered again.
 */
async function streamedEnd(
  server: TestServer,
  worker: StreamWorker,
  { runId, executionSeq }: JobAssignment,
  say: (job: JobAssignment) => void,
): Promise<string | undefined> {
  let answered = executionSeq;
  return endOf(server, runId, () => {
    for (const sent of worker.heard)
      if (sent.case === "job" && sent.value.runId === runId && sent.value.executionSeq > answered) {
        answered = sent.value.executionSeq;
        worker.ack(sent.value);
        say(sent.value);
      }
  });
}

/** How a run ended: its output, or undefined when the result was refused. */
async function endOf(
  server: TestServer,
  runId: string,
  meanwhile: () => void = () => {},
): Promise<string | undefined> {
  const run = await until(
    async () => {
      meanwhile();
      const [row] = await server.running.domain.store.all<{
        status: string | null;
        output: string | null;
        error: string | null;
      }>(sql`SELECT status, output, error FROM runs WHERE id = ${runId}`);
      return row?.status === "completed" || row?.status === "failed" ? row : undefined;
    },
    { about: `the end of ${runId}`, everyMs: 2 },
  );
  if (run.status === "completed") return run.output ?? "null";
  if (/INVALID_REPORT|VALIDATION_ERROR|PUSH_TRANSPORT/.test(run.error ?? "")) return undefined;
  throw new Error(`the run failed with ${run.error?.slice(0, 200)}`);
}

export interface StreamDoors {
  doors: DoorIn[];
  /** Names of the streams that did not live to the end. */
  cut(): string[];
  close(): void;
}

/** What a worker says on its stream, on every protocol: in messages of its own and as the text of a report. */
export async function streamDoors(server: TestServer): Promise<StreamDoors> {
  const doors: DoorIn[] = [];
  const streams: { name: string; worker: StreamWorker; error: { over: boolean } }[] = [];
  for (const protocol of protocols) {
    const functionId = `door.stream.${protocol.replaceAll(" ", ".")}`;
    const { worker, nextJob } = await openStreamed(server, protocol, functionId);
    const error = { over: false };
    void worker.ended.then(() => {
      error.over = true;
    });
    streams.push({ name: protocol, worker, error });
    const carried = (probe: Probe) =>
      !probe.textOnly && probe.levels <= readableLevelsMax && (probe.finite || protocol !== "connect json");
    let number = 0;
    doors.push(
      {
        name: `jobCompleted over ${protocol}`,
        takes: carried,
        async put({ text }) {
          const job = await nextJob();
          const outputValue = messageOf(JSON.parse(text));
          const say = (one: JobAssignment) =>
            worker.say({ case: "jobCompleted", value: { ...fenceOf(one), outputValue } });
          say(job);
          return streamedEnd(server, worker, job, say);
        },
      },
      {
        name: `stepCompleted over ${protocol}`,
        takes: carried,
        async put({ text }) {
          const job = await nextJob();
          const outputValue = messageOf(JSON.parse(text));
          const stepId = `${job.runId}:s:0`;
          const say = (one: JobAssignment) => {
            worker.say({ case: "stepCompleted", value: { ...fenceOf(one), stepId, outputValue } });
            worker.complete(one);
          };
          say(job);
          if ((await streamedEnd(server, worker, job, say)) === undefined) return undefined;
          return storedText(server, sql`SELECT output AS text FROM steps WHERE run_id = ${job.runId}`);
        },
      },
      {
        name: `report over ${protocol}`,
        takes: ({ levels }) => levels < 2_000,
        async put({ text }) {
          const job = await nextJob();
          const report = (one: JobAssignment, said: string) => {
            const fence = `"execution_seq":${one.executionSeq},"lease_token":"${one.leaseToken}"`;
            const value = { number: BigInt(++number), jobId: one.jobId, body: `{${fence},${said}}` };
            worker.say({ case: "report", value });
            return value.number;
          };
          const complete = (one: JobAssignment) => report(one, `"status":"completed","output":${text}`);
          const asked = complete(job);
          const status = await until(
            () => worker.heard.find((sent) => sent.case === "reported" && sent.value.number === asked),
            { about: `the answer to report ${asked}`, everyMs: 5 },
          ).then((sent) => (sent.case === "reported" ? sent.value.status : 0));
          if (status >= 500) throw new Error(`reported ${status}`);
          if (status === 0) return streamedEnd(server, worker, job, complete);
          const error = { message: "result refused", code: "INVALID_REPORT", retryable: false };
          const fail = (one: JobAssignment) =>
            report(one, JSON.stringify({ status: "failed", error }).slice(1, -1));
          fail(job);
          return streamedEnd(server, worker, job, fail);
        },
      },
    );
  }
  return {
    doors,
    cut: () => streams.filter(({ error }) => error.over).map(({ name }) => name),
    close: () => {
      for (const { worker } of streams) worker.cut();
    },
  };
}

/** An endpoint that answers what it is told to. */
export async function pushDoor(server: TestServer): Promise<{ door: DoorIn; close(): void }> {
  const answers = new Map<number, string>();
  let asked = 0;
  const endpoint = Bun.serve({
    port: 0,
    async fetch(request) {
      const { event } = (await request.json()) as { event: { data: { probe: number } } };
      return new Response(`{"status":"completed","result":${answers.get(event.data.probe)}}`);
    },
  });
  const functionId = "door.push";
  const endpointUrl = `http://127.0.0.1:${endpoint.port}/`;
  await server.rpc("SvcService", "RegisterFunction", {
    id: functionId,
    endpointUrl,
    retry: { maxAttempts: 1 },
  });
  return {
    door: {
      name: "push answer",
      takes: ({ levels }) => levels < 2_000,
      async put({ text }) {
        // An answer that cannot be read counts for the breaker, one that can takes it back.
        for (const answer of ["1", text]) {
          const probe = ++asked;
          answers.set(probe, answer);
          const { body } = await server.rpc("SvcService", "InvokeFunction", { functionId, data: { probe } });
          const [run] = await server.running.domain.store.all<{ id: string }>(
            sql`SELECT id FROM runs WHERE id = ${body.runId}`,
          );
          const end = await endOf(server, run!.id);
          if (answer === text) return end;
        }
        return undefined;
      },
    },
    close: () => endpoint.stop(true),
  };
}
