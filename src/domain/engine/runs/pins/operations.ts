import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow, shownFunctions, withoutHiddenInputs } from "../../../../gate/things.ts";
import {
  DeploymentSchema,
  ListDeploymentsResponseSchema,
  SvcService,
} from "../../../../gen/svc/v1/svc_pb.ts";
import { rfc3339 } from "../../../../kit/clock.ts";
import { shapeOf } from "../../../../kit/message-shape.ts";
import { listed, type Operation, rpc, unary } from "../../../../kit/operation.ts";
import { asGiven, asSent } from "../../../../kit/request.ts";
import { messageOf } from "../../../../kit/wkt.ts";
import { toRunMessage } from "../wire.ts";
import type { Deployment, Pins } from "./pins.ts";

export const DeploymentShape = shapeOf(DeploymentSchema, { absent: "since" });

const deploymentJson = (one: Deployment): Static<typeof DeploymentShape> => ({
  ...{ name: one.name, workers: one.workers, runs: one.runs, runs_capped: one.runsCapped, held: one.held },
  ...(one.since !== null && { since: rfc3339(one.since) }),
  ...{ safe_to_stop: one.runs === 0, function_ids: one.functionIds },
});

export const pinOperations = (pins: Pins): Operation[] => [
  unary({
    name: "deployments.list",
    action: "functions:read",
    alsoAsks: actionsThatShow("function"),
    summary: "Which builds of programs are connected, and how many runs are pinned to each.",
    reads: true,
    input: Type.Object({}),
    output: Type.Object({
      deployments: Type.Array(DeploymentShape, {
        description: "Those that a connected worker is of, or a run is pinned to.",
      }),
    }),
    rest: {
      route: "GET /api/v1/deployments",
      json: (list: Deployment[]) => ({ deployments: list.map(deploymentJson) }),
    },
    rpc: rpc(SvcService.method.listDeployments, asSent, (list: Deployment[]) =>
      messageOf(ListDeploymentsResponseSchema)({ deployments: list.map(deploymentJson) }),
    ),
    lists: listed(({ name }: Deployment) => [name]),
    async handle(_input, call) {
      const shown = await shownFunctions(call);
      const list = await pins.list(call.environmentId);
      return Promise.all(list.map(async (one) => ({ ...one, functionIds: await shown(one.functionIds) })));
    },
  }),
  unary({
    name: "runs.move",
    action: "runs:cancel",
    summary: "Gives a pinned run to another deployment, such as one that waits for workers that are gone.",
    input: Type.Object({
      runId: Type.String({ minLength: 1, maxLength: 200, description: "Id of the run (`run_…`)." }),
      deployment: Type.Optional(
        Type.String({
          maxLength: 128,
          description: "One that a connected worker of its function is of; the newest when left out.",
        }),
      ),
    }),
    rpc: rpc(SvcService.method.moveRun, (m) => ({ ...asGiven(m), runId: m.runId }), toRunMessage),
    async handle({ runId, deployment }, call) {
      const asked = { runId, deployment: deployment || undefined };
      const run = await pins.move(call.environmentId, asked, call.caller.id);
      return (await withoutHiddenInputs(call, [run]))[0]!;
    },
  }),
];
