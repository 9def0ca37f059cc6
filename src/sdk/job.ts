import type { Courier, Sending } from "./courier.ts";
import { NonRetryableError, type ReportedError, type SvcError } from "./errors.ts";
import { execute } from "./execute.ts";
import type { SvcFunction } from "./function.ts";
import type { Lease } from "./lease.ts";
import type { ExecutionHost } from "./step.ts";
import type { Logger } from "./types.ts";
import { type Assignment, type CompletedStep, exchangeCharactersMax, progressStepsMax } from "./wire.ts";

export interface JobOptions {
  assignment: Assignment;
  /** Undefined when this worker does not know the function. */
  target: SvcFunction | undefined;
  courier: Pick<Courier, "send">;
  lease: Lease;
  /** A unary RPC, made for this run. */
  call: <Answer>(runId: string, method: string, message: unknown) => Promise<Answer>;
  /** Milliseconds a finished step may wait for company; 0 = `step.run` returns once the server has stored it. */
  checkpointMs: number;
  log: Logger;
  /** The handler is over and its last report is on its way: room for another job. */
  onRoom: () => void;
}

/** One execution of a run, from assignment to its last report. */
export interface Job {
  readonly jobId: string;
  readonly startedAt: string;
  /** Resolves when nothing is left to do for it; never rejects. */
  readonly done: Promise<void>;
  /** Raises the handler's signal; nothing is reported from here on. */
  abandon(reason: SvcError): void;
}

/** The server refused a report for what it holds; sending it again would change nothing. */
const isRefusal = (error: SvcError) => error.status === 400 || error.status === 413 || error.status === 422;

export function startJob({
  assignment,
  target,
  courier,
  lease,
  call,
  checkpointMs,
  log,
  onRoom,
}: JobOptions): Job {
  const { job_id: jobId, run_id: runId } = assignment;
  const strict = checkpointMs === 0;
  const startedAt = new Date().toISOString();
  const memos = new Map<string, CompletedStep>();
  for (const step of assignment.completed_steps) memos.set(step.step_id, step);

  let lost: SvcError | undefined;
  let refused: SvcError | undefined;
  let controller: AbortController | undefined;

  // Steps in order: those the server has, then `unsent`, of which a progress on its way covers the first.
  let storedCount = assignment.step_sequence_base ?? 0;
  const unsent: { text: string; stored: (() => void) | undefined }[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  let flushing: Promise<void> | undefined;
  /** Characters of the last report, once it is known: it takes with it the steps that fit. */
  let ending: number | undefined;
  let onItsWay: Sending | undefined;

  const head =
    `{"job_id":${JSON.stringify(jobId)},"run_id":${JSON.stringify(runId)},` +
    `"execution_seq":${assignment.execution_seq},"lease_token":${JSON.stringify(assignment.lease_token)},`;
  const stepsText = (count: number) =>
    `"step_offset":${storedCount},"steps":[${unsent
      .slice(0, count)
      .map((step) => step.text)
      .join(",")}]`;

  function abandon(reason: SvcError): void {
    if (lost) return;
    lost = reason;
    clearTimeout(timer);
    onItsWay?.withdraw();
    controller?.abort(reason);
    for (const step of unsent.splice(0)) step.stored?.();
  }

  /** How many of the unsent steps fit one report. */
  function fitting(): number {
    let characters = 0;
    let count = 0;
    for (const { text } of unsent) {
      characters += text.length;
      if (count === progressStepsMax || (count > 0 && characters > exchangeCharactersMax)) break;
      count++;
    }
    return count;
  }

  /** Whether all unsent steps fit the last report: a step, and a result, may each be as large as a request. */
  function fitLast(characters: number): boolean {
    if (fitting() < unsent.length) return false;
    const all = unsent.reduce((sum, { text }) => sum + text.length, characters);
    return unsent.length === 0 || all <= exchangeCharactersMax;
  }

  async function flushSteps(): Promise<void> {
    while (unsent.length > 0 && !lost && !refused) {
      const count = fitting();
      onItsWay = courier.send({ jobId, text: `${head}"status":"progress",${stepsText(count)}}` });
      try {
        if ((await onItsWay.done) === "withdrawn") return;
        storedCount += count;
        for (const step of unsent.splice(0, count)) step.stored?.();
        if (ending !== undefined && fitLast(ending)) return;
      } catch (error) {
        onTrouble(error as SvcError);
      } finally {
        onItsWay = undefined;
      }
    }
  }

  function onTrouble(error: SvcError): void {
    if (isRefusal(error)) {
      refused = error;
      for (const step of unsent.splice(0)) step.stored?.();
    } else abandon(error);
  }

  function flush(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    flushing ??= flushSteps().finally(() => {
      flushing = undefined;
    });
    return flushing;
  }

  const requireHeld = () => {
    if (lost) throw lost;
    if (refused)
      throw new NonRetryableError(`the server refused a step: ${refused.message}`, { cause: refused });
  };

  const host: ExecutionHost = {
    requireHeld,
    memo: (stepId) => memos.get(stepId),
    sure: () => lease.sure()?.catch(onTrouble).then(requireHeld),
    record(text) {
      if (lost) throw lost;
      if (!strict) {
        unsent.push({ text, stored: undefined });
        if (!flushing) timer ??= setTimeout(() => void flush(), checkpointMs);
        return undefined;
      }
      const stored = new Promise<void>((done) => unsent.push({ text, stored: done }));
      void flush();
      return stored.then(requireHeld);
    },
    signal() {
      controller ??= new AbortController();
      if (lost) controller.abort(lost);
      return controller.signal;
    },
    now: Date.now,
    call: (method, message) => call(runId, method, message),
  };

  /** The last report. Whatever steps the server lacks travel with it, save those before a yield, which go ahead. */
  async function settle(rest: string, stepsAhead: boolean): Promise<void> {
    if (stepsAhead) {
      while (unsent.length > 0 && !lost && !refused) await flush();
    } else {
      clearTimeout(timer);
      onItsWay?.withdraw();
      await flushing;
      ending = rest.length;
      while (!fitLast(rest.length) && !lost && !refused) await flush();
    }
    if (lost) return;
    if (refused) return settleRefused(refused);
    const steps = unsent.length > 0 ? `,${stepsText(unsent.length)}` : "";
    await deliver(`${head}${rest}${steps}}`);
  }

  async function deliver(text: string): Promise<void> {
    const sending = courier.send({ jobId, text });
    onRoom();
    try {
      await sending.done;
    } catch (error) {
      if (isRefusal(error as SvcError) && !refused) return settleRefused(error as SvcError);
      lost = error as SvcError;
    }
  }

  /** A result that the server will never take must not come back attempt after attempt. */
  async function settleRefused(error: SvcError): Promise<void> {
    refused = error;
    log.error("the server refused a report", { runId, code: error.code, reason: error.message });
    await deliver(
      `${head}${failure({ message: `result refused: ${error.message}`, code: error.code, retryable: false })}}`,
    );
  }

  const failure = (error: ReportedError) => `"status":"failed","error":${JSON.stringify(error)}`;

  async function perform(): Promise<void> {
    if (!target) {
      const message = `this worker has no function ${assignment.function_id}`;
      return settle(failure({ message, code: "FUNCTION_NOT_FOUND", retryable: false }), false);
    }
    const end = await execute(target, assignment, host, log);
    if (lost) return;
    switch (end.status) {
      case "yielded":
        return settle(`"status":"yielded","yield":${JSON.stringify(end.yield)}`, true);
      case "completed":
        return settle(`"status":"completed","output":${end.outputText}`, false);
      case "failed":
        log.warn("run failed", { runId, attempt: assignment.attempt, reason: end.error.message });
        return settle(failure(end.error), false);
    }
  }

  const done = perform()
    .catch((error) => log.error("a job broke", { runId, reason: String(error) }))
    .then(() => {
      onRoom();
      if (lost) log.warn("run dropped", { runId, code: lost.code, reason: lost.message });
    });
  return { jobId, startedAt, done, abandon };
}
