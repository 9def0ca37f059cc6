import type { AssignedJob } from "../../src/domain/engine/jobs/rules.ts";
import type { ReportBody } from "../../src/domain/engine/workers/report-body.ts";
import { Fault } from "../../src/kit/fault.ts";
import type { Chance } from "../support/chance.ts";
import {
  answerOf,
  childInput,
  failuresUpTo,
  inputOf,
  type Line,
  type Program,
  signalKey,
} from "../support/run-program.ts";
import type { SimulatedNode } from "./node.ts";
import type { ProcessTime, Time } from "./time.ts";
import { processTime } from "./time.ts";
import { undoOf } from "./undo.ts";

export interface WorkerWorld {
  time: Time;
  environmentId: string;
  programs: ReadonlyMap<string, Program>;
  /** Its workers undo runs. */
  isUndone: boolean;
  /** A live node, by chance. */
  node(chance: Chance): SimulatedNode;
  /** The body of a step runs: whoever looks on judges whether it may. */
  effect(runId: string, stepId: string): void;
  /** Runs that a person let go on from one of their steps: what is behind it runs again. */
  mayRepeat: Set<string>;
  /** The server said that it has the step. */
  stored(runId: string, stepId: string): void;
  /** A worker got this execution of the run; answers which one was given last so far. */
  newest(runId: string, given?: number): number;
  /** A report of this execution was taken, when another one had been given before it was sent. */
  outdated(runId: string, executionSeq: number): void;
}

/** A call that a dead node never answers. */
const callMs = 5_000;

type Step = NonNullable<ReportBody["steps"]>[number];

/** A worker process: polls, runs programs, reports, and may die or stand still at any moment. */
export function startWorker(id: string, world: WorkerWorld, chance: Chance, leaseMs: number): ProcessTime {
  const { time, environmentId } = world;
  const process = processTime(time);
  /** Some ask for a lease of their own, and say what they hold when a request has failed. */
  const own = chance.branch("lease");
  const asks = own.happens(0.5);
  const asked = asks ? { lease_ms: Math.round(leaseMs / own.between(1, 3)), instance: `${id} at work` } : {};
  const ownLeaseMs = asked.lease_ms ?? leaseMs;
  const slots = chance.between(1, 6);
  const held = new Map<string, AssignedJob>();
  /** When the lease of each job was last known to begin, as the SDK's workers count it (src/sdk/worker/lease.ts). */
  const leasedAt = new Map<string, number>();
  const leaseHolds = (job: AssignedJob) => time.elapsed() - leasedAt.get(job.jobId)! < job.leaseMs;

  /** Rejects with `Error` when the answer does not come in time. */
  async function call<T>(ask: (node: SimulatedNode) => Promise<T>): Promise<T> {
    await process.awake();
    const late = time.sleep(callMs).then(() => Promise.reject(new Error("no answer")));
    late.catch(() => {});
    const answer = ask(world.node(chance));
    answer.catch(() => {});
    try {
      return await Promise.race([answer, late]);
    } finally {
      await process.awake();
    }
  }

  const pause = (ms: number) => process.clock.sleep(ms);

  async function live(): Promise<void> {
    const functionIds = [...world.programs.keys()];
    for (;;) {
      try {
        await call(({ engine }) =>
          engine.workers.register(
            environmentId,
            {
              workerId: id,
              functionIds,
              maxConcurrentJobs: slots,
              version: { sdk: "0.40.0" },
              ...(world.isUndone && { features: ["compensation"] }),
            },
            engine.workers.leaseTerms(asked),
          ),
        );
        break;
      } catch {
        await pause(chance.between(50, 500));
      }
    }
    void beat();
    let isUnsure = false;
    for (;;) {
      const free = slots - held.size;
      if (free <= 0) {
        await pause(20);
        continue;
      }
      const gone = new AbortController();
      try {
        const askedAt = time.elapsed();
        const said = isUnsure && asks ? [...held.keys()] : undefined;
        const { jobs } = await call(({ engine }) =>
          engine.workers.exchange(
            environmentId,
            id,
            {
              ...{ reports: [], acks: [], available: free, held: said },
              terms: engine.workers.leaseTerms(asked),
            },
            gone.signal,
          ),
        );
        isUnsure = false;
        for (const job of jobs) {
          held.set(job.jobId, job);
          world.newest(job.runId, job.executionSeq);
          leasedAt.set(job.jobId, askedAt);
          void handle(job).finally(() => held.delete(job.jobId));
        }
        if (jobs.length === 0) await pause(chance.between(1, 200));
      } catch {
        gone.abort();
        isUnsure = true;
        await pause(chance.between(50, 500));
      }
    }
  }

  async function beat(): Promise<void> {
    for (;;) {
      await pause(ownLeaseMs / (asks ? 4 : 3));
      const askedAt = time.elapsed();
      const jobs = [...held.values()];
      await call(({ engine }) =>
        engine.workers.heartbeat(environmentId, id, {
          jobIds: jobs.map((job) => job.jobId),
          terms: engine.workers.leaseTerms(asked),
        }),
      ).then(
        () => {
          for (const job of jobs) if (leaseHolds(job)) leasedAt.set(job.jobId, askedAt);
        },
        () => {},
      );
    }
  }

  /** Whether the lease still is this worker's, asked of the server when it may be over; renews it. */
  async function confirm({
    jobId: job_id,
    executionSeq: execution_seq,
    leaseToken: lease_token,
  }: AssignedJob) {
    const askedAt = time.elapsed();
    try {
      await call(({ engine }) =>
        engine.workers.ack(environmentId, id, { job_id, execution_seq, lease_token, ...asked }),
      );
      leasedAt.set(job_id, askedAt);
      return true;
    } catch {
      return false;
    }
  }

  /** Answers whether the run still is this worker's. */
  async function send(
    job: AssignedJob,
    report: Omit<ReportBody, "execution_seq" | "lease_token">,
  ): Promise<boolean> {
    for (let tries = 0; tries < 8; tries++) {
      try {
        await process.awake();
        const isOutdated = tries === 0 && world.newest(job.runId) > job.executionSeq;
        await call(({ engine }) =>
          engine.workers.report(environmentId, id, job.jobId, {
            ...report,
            execution_seq: job.executionSeq,
            lease_token: job.leaseToken,
          }),
        );
        if (isOutdated) world.outdated(job.runId, job.executionSeq);
        for (const step of report.steps ?? [])
          if (step.status === "completed") world.stored(job.runId, step.id);
        return true;
      } catch (error) {
        if (error instanceof Fault && error.kind !== "unavailable" && error.kind !== "resource_exhausted")
          return false;
        await pause(chance.between(20, 400) * (tries + 1));
      }
    }
    return false;
  }

  async function handle(job: AssignedJob): Promise<void> {
    const program = world.programs.get(job.functionId)!;
    const input = inputOf(job.event.data);
    if (chance.happens(0.5) && !(await confirm(job))) return;
    if (job.compensating) {
      world.mayRepeat.add(job.runId);
      await send(job, undoOf(job, chance));
      return;
    }
    const known = new Map(job.completedSteps.map((step) => [step.step_id, step]));
    const outputs: unknown[] = [];
    let unsent: Step[] = [];
    let offset = job.stepSequenceBase;
    let undoCount = world.isUndone ? job.completedSteps.filter(({ type }) => type === "invoke").length : 0;
    const taken = () => {
      const report = {
        steps: unsent,
        step_offset: offset,
        ...(undoCount > 0 && { compensations: undoCount }),
      };
      offset += unsent.length;
      unsent = [];
      return report;
    };
    for (const [place, line] of program.lines.entries()) {
      const stepId = `${job.runId}:${line.name}:0`;
      const done = known.get(stepId);
      if (done) {
        if ((done as { status?: string }).status === "failed") {
          await send(job, { status: "failed", ...taken(), error: { message: "child", retryable: false } });
          return;
        }
        outputs.push(outputOf(line, done.output));
        continue;
      }
      if (line.kind !== "step") {
        if (
          unsent.length > 0 &&
          chance.happens(0.7) &&
          !(await send(job, { status: "progress", ...taken() }))
        )
          return;
        await send(job, {
          status: "yielded",
          ...taken(),
          yield: yieldOf(line, stepId, input, process.clock.now()),
        });
        return;
      }
      await pause(chance.between(0, 300));
      if (line.failures > 0 && job.attempt <= failuresUpTo(program, place)) {
        await send(job, { status: "failed", ...taken(), error: { message: "not yet", retryable: true } });
        return;
      }
      while (!leaseHolds(job)) if (!(await confirm(job))) return;
      // The server knows that there is something to undo before there is.
      if (world.isUndone && undoCount++ === 0)
        if (!(await send(job, { status: "progress", compensations: 1 }))) return;
      world.effect(job.runId, stepId);
      const output = answerOf(input, line.name);
      outputs.push(output);
      unsent.push({ id: stepId, name: line.name, type: "invoke", status: "completed", output });
      if (chance.happens(0.4) && !(await send(job, { status: "progress", ...taken() }))) return;
    }
    await pause(chance.between(0, 100));
    if (program.endsBadly)
      await send(job, { status: "failed", ...taken(), error: { message: "bad end", retryable: false } });
    else await send(job, { status: "completed", ...taken(), output: outputs });
  }

  void live();
  return process;
}

function outputOf(line: Line, output: string | null): unknown {
  if (line.kind === "step") return JSON.parse(output ?? "null");
  if (line.kind === "invoke" && !line.detached) return JSON.parse(output ?? "null");
  return line.kind;
}

function yieldOf(line: Exclude<Line, { kind: "step" }>, stepId: string, input: string, now: number) {
  switch (line.kind) {
    case "sleep":
      return { step_id: stepId, type: "sleep", until: new Date(now + line.ms).toISOString() };
    case "wait": {
      const key = signalKey(input, line.name);
      const forms = {
        path: { match: "data.k", match_value: key },
        literal: { match: `data.k == ${JSON.stringify(key)}` },
        cel: { match: `data.k.startsWith(${JSON.stringify(key)}) && event.name == "signal"` },
      };
      return {
        step_id: stepId,
        type: "wait_for_event",
        event_filter: { event: "signal", timeout: "1d", ...forms[line.form] },
      };
    }
    case "invoke":
      return {
        step_id: stepId,
        type: line.detached ? "invoke_function_async" : "invoke_function",
        function_id: line.child,
        input: { input: childInput(input, line.name) },
        invoke_timeout_ms: 3_600_000,
      };
  }
}
