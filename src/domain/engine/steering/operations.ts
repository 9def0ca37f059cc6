import type { Value } from "@bufbuild/protobuf/wkt";
import { Type } from "@sinclair/typebox";
import { withoutHiddenInputs } from "../../../gate/things.ts";
import { SvcService } from "../../../gen/svc/v1/svc_pb.ts";
import { invalid } from "../../../kit/fault.ts";
import { type Operation, rpc, unary } from "../../../kit/operation.ts";
import { jsonText } from "../../../kit/payload-json.ts";
import { asGiven, requestOf } from "../../../kit/request.ts";
import { aboutStep } from "../../../kit/step-id.ts";
import { jsonOf, timestampOf } from "../../../kit/wkt.ts";
import type { Step } from "../runs/run.ts";
import { toRunMessage, toStepMessage } from "../runs/wire.ts";
import { readJsonText } from "./rules.ts";
import type { PausedState, Steering } from "./service.ts";

const id = Type.String({ minLength: 1, maxLength: 2_048 });
const reason = Type.Optional(Type.String({ maxLength: 100_000 }));

const pausedStep = (step: Step) => ({
  id: step.id,
  name: step.name,
  output: step.output ?? "",
  injected: step.patchedAt !== null,
  ...(step.endedAt !== null && { completedAt: timestampOf(step.endedAt) }),
  stepType: step.type,
  status: step.status,
  error: step.error === null ? "" : JSON.stringify(step.error),
});

/** The plain field, or its twin for what is no object; the hot path's JSON needs neither. */
const outputOf = (output: object | undefined, twin: Value | undefined): string | undefined => {
  if (output !== undefined) return jsonText("output", output);
  return twin === undefined ? undefined : jsonText("output", jsonOf(twin));
};

export const steeringOperations = (steering: Steering): Operation[] => [
  unary({
    name: "runs.cancel",
    action: "runs:cancel",
    summary: "Cancels a run that is not over; repeated, it answers the cancelled run.",
    ...requestOf(SvcService.method.cancelRun, toRunMessage, { id, reason }),
    async handle(input, call) {
      const run = await steering.cancel(call.environmentId, input.id, input.reason ?? "", call.caller.id);
      return (await withoutHiddenInputs(call, [run]))[0]!;
    },
  }),
  unary({
    name: "runs.pause",
    action: "runs:cancel",
    summary: "Holds a run: at once while it waits, at the next step boundary while it runs.",
    ...requestOf(SvcService.method.pauseRun, (status: string) => ({ status }), { runId: id }),
    handle: (input, call) => steering.pause(call.environmentId, input.runId, call.caller.id),
  }),
  unary({
    name: "runs.pausedState",
    action: "runs:read",
    reads: true,
    summary: "Steps of a run that a person holds.",
    ...requestOf(
      SvcService.method.getPausedState,
      (state: PausedState) => ({
        steps: state.steps.map(pausedStep),
        nextStepHint: state.nextStepHint,
        pauseReason: state.pauseReason,
      }),
      { runId: id },
    ),
    handle: (input, call) => steering.pausedState(call.environmentId, input.runId),
  }),
  unary({
    name: "runs.inject",
    action: "runs:cancel",
    summary: "Replaces the output of a completed step of a run that a person holds.",
    ...requestOf(
      SvcService.method.injectStepOutput,
      (answer: { stepId: string; previousOutput: string }) => answer,
      { runId: id, stepId: id, reason },
    ),
    handle: ({ runId, stepId, newOutput, reason: why }, call) =>
      steering.inject(
        call.environmentId,
        { runId, stepId, output: readJsonText("new_output", newOutput), reason: why ?? "" },
        call.caller.id,
      ),
  }),
  unary({
    name: "steps.patch",
    action: "runs:cancel",
    summary: "Replaces the output of a completed or failed step, whatever its run does.",
    input: Type.Object({ stepId: id, output: Type.Optional(Type.String()), reason }),
    about: aboutStep,
    rpc: rpc(
      SvcService.method.patchStep,
      (m) => {
        const output = outputOf(m.output, m.outputValue);
        return { stepId: m.stepId, ...(output !== undefined && { output }), reason: m.reason };
      },
      toStepMessage,
      {
        // Clients send the JSON in either field, under either name.
        decode({ output, outputValue, ...body }) {
          const given = outputValue === undefined ? output : outputValue;
          return { ...body, ...(given !== undefined && { output: jsonText("output", given) }) };
        },
      },
    ),
    handle({ stepId, output, reason: why }, call) {
      if (output === undefined) throw invalid("output", "is required");
      return steering.patch(
        call.environmentId,
        { stepId, output: readJsonText("output", output), reason: why ?? "" },
        call.caller.id,
      );
    },
  }),
  unary({
    name: "runs.previewResume",
    action: "runs:read",
    reads: true,
    summary: "Which steps of a paused or failed run a resume would run again, and which stay.",
    input: Type.Object({ runId: id, fromStep: Type.Optional(Type.String({ maxLength: 2_048 })) }),
    rpc: rpc(
      SvcService.method.previewResume,
      (m) => ({ ...asGiven(m), runId: m.runId }),
      (steps: Awaited<ReturnType<Steering["previewResume"]>>) => ({ steps }),
    ),
    handle: ({ runId, fromStep }, call) =>
      steering.previewResume(call.environmentId, { runId, fromStep: fromStep || undefined }),
  }),
  unary({
    name: "runs.resume",
    action: "runs:cancel",
    summary: "Lets a paused or failed run go on, from one of its steps when asked to.",
    input: Type.Object({
      runId: id,
      fromStep: Type.Optional(Type.String({ maxLength: 2_048 })),
      skipSleep: Type.Optional(Type.Boolean()),
      stepId: Type.Optional(Type.String({ maxLength: 2_048 })),
    }),
    rpc: rpc(
      SvcService.method.resumeRun,
      (m) => ({
        ...{ ...asGiven(m), runId: m.runId },
        ...(m.skipSleep !== undefined && { skipSleep: m.skipSleep }),
      }),
      toRunMessage,
    ),
    async handle({ runId, fromStep, skipSleep, stepId }, call) {
      const asked = { runId, fromStep: fromStep || undefined, skipSleep, stepId: stepId || undefined };
      const run = await steering.resume(call.environmentId, asked, call.caller.id);
      return (await withoutHiddenInputs(call, [run]))[0]!;
    },
  }),
];
