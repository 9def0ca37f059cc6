import { filtersOf } from "../wire/attributes.ts";
import { requireMs, timeoutNames, withUnits } from "../wire/duration.ts";
import type { ErrorCalls, ErrorGroup } from "../wire/error-types.ts";
import { SvcError } from "../wire/errors.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { outputText } from "../wire/payload.ts";
import {
  all,
  fieldsOf,
  instant,
  type Message,
  type PreviewedStep,
  parsed,
  readPausedState,
  readRun,
  readStep,
  text,
} from "../wire/read.ts";
import { once, pause, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { RunLogs, RunStatus } from "../wire/types.ts";
import type { ListRunsOptions, RunCalls, RunsFound } from "./client-types.ts";

const waitFirstMs = 25;
const waitMsMax = 1_000;
const known: KnownOptions<ListRunsOptions> = {
  ...{ functionId: true, eventId: true, statuses: true, search: true, since: true, until: true },
  ...{
    compensationFailed: true,
    errorGroup: true,
    eventName: true,
    errorText: true,
    attributes: true,
    orderBy: true,
    limit: true,
    cursor: true,
  },
};
const ended = new Set<RunStatus>(["completed", "failed", "cancelled"]);

const isObject = (value: unknown) => typeof value === "object" && value !== null && !Array.isArray(value);

export function runCalls(transport: Transport): RunCalls {
  const rpc = <Answer>(method: string, message: unknown, options: { repeatable: boolean }) =>
    transport.rpc<Answer>(`SvcService/${method}`, message, options);

  const calls: RunCalls = {
    getRun: async (id, { withAttempts = false } = {}) =>
      readRun(await rpc("GetRun", { id, ...(withAttempts && { withAttempts }) }, safe)),

    async listRuns(options = {}) {
      requireKnown("listRuns", options, known);
      const { statuses, since, until, attributes, ...given } = options;
      const message = {
        ...given,
        ...(statuses && { statuses: statuses.map((status) => `RUN_STATUS_${status.toUpperCase()}`) }),
        ...(since !== undefined && { since: instant(since) }),
        ...(until !== undefined && { until: instant(until) }),
        ...(attributes && { attributes: filtersOf(attributes) }),
      };
      const answer = await rpc<{ runs?: Message[] } & Partial<Omit<RunsFound, "runs">>>(
        "ListRuns",
        message,
        safe,
      );
      return {
        runs: (answer.runs ?? []).map(readRun),
        totalCount: answer.totalCount ?? 0,
        ...(answer.nextCursor && { nextCursor: answer.nextCursor }),
        ...(answer.totalCountCapped && { totalCountCapped: true }),
        ...(answer.truncated && { truncated: true, scanned: answer.scanned ?? 0 }),
      };
    },

    async getRunSteps(runId, { withTries = false } = {}) {
      const asked = { runId, ...(withTries && { withTries }) };
      const answer = await rpc<{ steps?: Message[] }>("GetRunSteps", asked, safe);
      return (answer.steps ?? []).map(readStep);
    },

    async getRunLogs(runId, { after = "" } = {}) {
      const answer = await rpc<Partial<RunLogs>>("GetRunLogs", { runId, after }, safe);
      const { lines = [], leftOut = 0, cursor = "" } = answer;
      return { lines: lines.map((line) => ({ ...{ workerId: "", text: "" }, ...line })), leftOut, cursor };
    },

    async waitForRun(runId, options = {}) {
      const given = withUnits("waitForRun", options, timeoutNames, { endless: true });
      const { timeoutMs = 30_000, signal } = given;
      const deadline = Date.now() + requireMs("timeoutMs", timeoutMs);
      for (let waitMs = waitFirstMs; ; waitMs = Math.min(waitMs * 1.5, waitMsMax)) {
        const run = await calls.getRun(runId);
        if (ended.has(run.status)) return run;
        const leftMs = deadline - Date.now();
        if (signal?.aborted) throw new SvcError("aborted_by_caller", `waiting for run ${runId} was given up`);
        if (leftMs <= 0) {
          throw new SvcError("deadline_exceeded", `run ${runId} is ${run.status} after ${timeoutMs} ms`);
        }
        await pause(Math.min(waitMs, leftMs), signal);
      }
    },

    cancelRun: async (id, { reason = "" } = {}) => readRun(await rpc("CancelRun", { id, reason }, once)),

    async pauseRun(runId) {
      const answer = await rpc<{ status?: string }>("PauseRun", { runId }, once);
      return answer.status === "paused" ? "paused" : "pause_requested";
    },

    getPausedState: async (runId) => readPausedState(await rpc("GetPausedState", { runId }, safe)),

    async injectStepOutput(runId, stepId, output, { reason = "" } = {}) {
      const newOutput = outputText("the new output", output) ?? "null";
      const answer = await rpc<{ stepId?: string; previousOutput?: string }>(
        "InjectStepOutput",
        { runId, stepId, newOutput, reason },
        once,
      );
      return { stepId: answer.stepId ?? stepId, previousOutput: parsed(answer.previousOutput) };
    },

    async patchStep(stepId, output, { reason = "" } = {}) {
      const own = isObject(output) ? { output } : { outputValue: output ?? null };
      return readStep(await rpc("PatchStep", { stepId, ...own, reason }, once));
    },

    async resumeRun(runId, { fromStep, stepId, skipSleep = stepId !== undefined } = {}) {
      const named = { ...(fromStep !== undefined && { fromStep }), ...(stepId !== undefined && { stepId }) };
      return readRun(await rpc("ResumeRun", { runId, skipSleep, ...named }, once));
    },

    async previewResume(runId, { fromStep } = {}) {
      const { steps = [] } = await rpc<{ steps?: Partial<PreviewedStep>[] }>(
        "PreviewResume",
        { runId, ...(fromStep !== undefined && { fromStep }) },
        safe,
      );
      const none = { runsAgain: false, patchLost: false, notUndone: false, builtOnAgain: false };
      return steps.map((step) => ({ ...none, ...(step as Pick<PreviewedStep, "id" | "name" | "status">) }));
    },
  };
  return calls;
}

const readGroup: (message: Message) => ErrorGroup = fieldsOf<ErrorGroup>()({
  texts: ["id", "functionId", "code", "message", "frame", "firstSeenAt", "lastSeenAt", "sampleRunId"],
  counts: ["count"],
});

export const errorCalls = (transport: Transport): ErrorCalls => ({
  async list({ since, ...options } = {}) {
    const message = { ...options, ...(since !== undefined && { since: instant(since) }) };
    const answer = await transport.rpc<Message>("ErrorService/ListErrorGroups", message, safe);
    return { groups: all(answer.groups, readGroup), nextCursor: text(answer.nextCursor) };
  },
  get: async (id) => readGroup(await transport.rpc<Message>("ErrorService/GetErrorGroup", { id }, safe)),
});
