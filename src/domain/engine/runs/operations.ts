import { Type } from "@sinclair/typebox";
import { screenOfKinds, withoutHiddenInputs } from "../../../gate/things.ts";
import { SvcService } from "../../../gen/svc/v1/svc_pb.ts";
import { withoutPlace } from "../../../kit/bounded-look.ts";
import { valueBytes } from "../../../kit/cut-values.ts";
import { type Call, inJson, listedById, rpc, unary } from "../../../kit/operation.ts";
import { asGiven } from "../../../kit/request.ts";
import { AttributeFilterShape } from "../attributes/rules.ts";
import { filterOfMessage } from "../attributes/wire.ts";
import type { ConnectedWorkers } from "../serving/service.ts";
import type { FailedTry, PastAttempt } from "./attempts.ts";
import { cutRun, type WithCuts } from "./large-values.ts";
import type { Run, Step } from "./run.ts";
import type { ListRunsInput, Runs, RunsPage } from "./service.ts";
import { logsJson, RunLogsShape, runStatusWord, toLogsMessage, toRunMessage, toStepMessage } from "./wire.ts";

const id = Type.String({ minLength: 1, maxLength: 200 });

const ListInput = Type.Object({
  functionId: Type.Optional(Type.String()),
  eventId: Type.Optional(Type.String()),
  search: Type.Optional(Type.String()),
  status: Type.Optional(Type.Union([Type.String(), Type.Integer()])),
  statuses: Type.Optional(Type.Array(Type.Union([Type.String(), Type.Integer()]), { maxItems: 20 })),
  since: Type.Optional(Type.String()),
  until: Type.Optional(Type.String()),
  limit: Type.Optional(Type.Integer()),
  offset: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000 })),
  cursor: Type.Optional(Type.String()),
  compensationFailed: Type.Optional(Type.Boolean()),
  errorGroup: Type.Optional(Type.String({ maxLength: 200 })),
  eventName: Type.Optional(Type.String()),
  errorText: Type.Optional(Type.String()),
  attributes: Type.Optional(Type.Array(AttributeFilterShape)),
  orderBy: Type.Optional(Type.Object({ name: Type.String(), ascending: Type.Optional(Type.Boolean()) })),
  maxValueBytes: valueBytes,
});

/** Enum numbers become words; UNSPECIFIED is no filter. */
const words = (list: readonly (string | number)[]): string[] =>
  list.flatMap((status) =>
    typeof status === "number" ? (runStatusWord(status) ?? (status === 0 ? [] : `${status}`)) : status || [],
  );

const waits = ({ status, mode }: Run) => status === "waiting_for_capacity" && mode === "pull";

/** Whether runs wait for a worker that is not there is looked up only where one waits. */
async function served<Found extends Run>(
  serving: ConnectedWorkers,
  environmentId: string,
  found: readonly Found[],
): Promise<(Found & { unserved?: boolean })[]> {
  const known = found.some(waits) ? await serving.fresh(environmentId) : undefined;
  if (!known) return [...found];
  return found.map((run) => ({ ...run, unserved: waits(run) && !known.has(run.functionId) }));
}

/**
 * Runs show nothing of events that policies hide from the caller. Which runs an attribute finds, and where it
 * puts them, tells the value that their event gave them.
 */
async function openTo(call: Call, page: RunsPage, isByValue: boolean): Promise<RunsPage> {
  const runs = [...(await withoutHiddenInputs(call, page.runs))];
  if (!isByValue || !(await screenOfKinds(call, "event", "stream"))) return { ...page, runs };
  const open = runs.filter((run, at) => run === page.runs[at]);
  return withoutPlace<RunsPage>(listedById("runs")).only(page, open as never[]);
}

const read = { action: "runs:read", reads: true, waitsFor: "log" } as const;

export const runsOperations = (runs: Runs, serving: ConnectedWorkers) => [
  unary({
    name: "runs.get",
    ...read,
    summary: "One run.",
    input: Type.Object({ id, maxValueBytes: valueBytes, withAttempts: Type.Optional(Type.Boolean()) }),
    rpc: rpc(
      SvcService.method.getRun,
      (m) => ({ ...asGiven(m), id: m.id }),
      (run: Run & { attempts?: PastAttempt[] } & WithCuts) => toRunMessage(run),
      inJson,
    ),
    async handle(input, call) {
      const run = await runs.get(call.environmentId, input.id);
      const [shown] = await served(serving, call.environmentId, await withoutHiddenInputs(call, [run]));
      const isDenied = !shown!.unserved && waits(run) && (await runs.wasDenied(run.id));
      const attempts = input.withAttempts && (await runs.attempts(call.environmentId, run.id));
      return cutRun({ ...shown!, isDenied, ...(attempts && { attempts }) }, input.maxValueBytes);
    },
  }),
  unary({
    name: "runs.list",
    ...read,
    summary: "Runs of the environment, newest first.",
    input: ListInput,
    rpc: rpc(
      SvcService.method.listRuns,
      ({ attributes, ...m }) => ({
        ...asGiven(m),
        ...(attributes.length > 0 && { attributes: attributes.map(filterOfMessage) }),
      }),
      (page: RunsPage) => ({
        runs: page.runs.map(toRunMessage),
        nextCursor: page.nextCursor ?? "",
        ...{ totalCount: page.totalCount, totalCountCapped: page.isTotalCut },
        ...{ truncated: page.scanned > 0, scanned: page.scanned },
      }),
      // Status words come as `running`, `RUNNING` and the enum constant.
      inJson,
    ),
    lists: listedById("runs"),
    async handle(input, call) {
      const { status, statuses: many, maxValueBytes, ...rest } = input;
      const filter: ListRunsInput = {
        ...rest,
        statuses: words([...(status === undefined ? [] : [status]), ...(many ?? [])]),
      };
      const page = await runs.list(call.environmentId, filter);
      const isByValue = filter.attributes !== undefined || filter.orderBy !== undefined;
      const open = await openTo(call, page, isByValue);
      const shown = await served(serving, call.environmentId, open.runs);
      return { ...open, runs: shown.map((run) => cutRun(run, maxValueBytes)) };
    },
  }),
  unary({
    name: "runs.steps",
    ...read,
    summary: "Steps of a run in order.",
    input: Type.Object({
      ...{ runId: id, stepId: Type.Optional(id), maxValueBytes: valueBytes },
      withTries: Type.Optional(Type.Boolean()),
    }),
    rpc: rpc(
      SvcService.method.getRunSteps,
      (m) => ({ ...asGiven(m), runId: m.runId }),
      (steps: (Step & { failedTries?: FailedTry[] } & WithCuts)[]) => ({ steps: steps.map(toStepMessage) }),
      inJson,
    ),
    async handle({ runId, stepId, maxValueBytes, withTries }, call) {
      const steps = await runs.steps(call.environmentId, runId, { stepId, valueBytesMax: maxValueBytes });
      const tries = withTries ? await runs.tries(call.environmentId, runId) : undefined;
      return steps.map((step) => {
        const failedTries = tries?.get(step.stepId);
        return { ...step, ...(failedTries && { failedTries }) };
      });
    },
  }),
  unary({
    name: "runs.logs",
    ...read,
    summary: "What the handler of a run wrote, oldest first: at most 64 KiB.",
    input: Type.Object({
      id: Type.String({ minLength: 1, maxLength: 200, description: "Id of the run (`run_…`)." }),
      after: Type.Optional(
        Type.String({
          maxLength: 30,
          description: "The `cursor` of an earlier answer: only what was written since.",
        }),
      ),
    }),
    output: RunLogsShape,
    rest: { route: "GET /api/v1/runs/{id}/logs", json: logsJson },
    rpc: rpc(
      SvcService.method.getRunLogs,
      (m) => ({ id: m.runId, ...(m.after && { after: m.after }) }),
      toLogsMessage,
    ),
    handle: ({ id: runId, after }, call) => runs.logs(call.environmentId, runId, after),
  }),
];
