import { Type } from "@sinclair/typebox";
import { EnvironmentService } from "../../../gen/svc/v1/environment_pb.ts";
import { recordJson, stated } from "../../../kit/cases.ts";
import { described, maybe } from "../../../kit/described.ts";
import { listedById, type Operation, rpc, unary } from "../../../kit/operation.ts";
import { asSent } from "../../../kit/request.ts";
import { timestampOf } from "../../../kit/wkt.ts";
import type { Environments, ListedEnvironment } from "./environments.ts";

const text = Type.String({ maxLength: 2_000 });
const instant = Type.String({ format: "date-time" });
const byId = { id: Type.String({ minLength: 1, description: "Id of the environment (`env_…`)." }) };

export const EnvironmentShape = Type.Object({
  id: described(text, "Id of the environment (`env_…`)."),
  name: described(text, "Name of the environment."),
  color: described(text, "Color of the environment in the dashboard."),
  run_failed_events: maybe.flag("Each run that fails for good emits `svc.run.failed`; absent for false."),
  project_id: Type.Optional(text),
  created_at: instant,
  updated_at: instant,
});

const environmentJson = (environment: ListedEnvironment) => ({
  ...recordJson(environment, "id name color"),
  ...(environment.tellsFailures && { run_failed_events: true }),
  ...recordJson(environment, "projectId createdAt updatedAt"),
});

/** Only a rotation answers the text of the key. */
const environmentInfo = ({ id, name, keyPrefix, createdAt, updatedAt }: ListedEnvironment) => ({
  id,
  name,
  apiKey: keyPrefix === undefined ? "" : `${keyPrefix}********`,
  createdAt: timestampOf(createdAt),
  updatedAt: timestampOf(updatedAt),
});

const ofItself = { environmentOf: ({ id }: { id: string }) => id, special: { crossesOrgs: true } };

const listFunctions = { action: "functions:list", scope: "none", reads: true } as const;
const manage = { action: "secrets:manage", scope: "none" } as const;

export const environmentsOperations = (environments: Environments): Operation[] => [
  unary({
    name: "environments.list",
    ...listFunctions,
    summary: "Environments of the org, oldest first.",
    input: Type.Object({ project_id: Type.Optional(text) }),
    output: Type.Array(EnvironmentShape),
    rest: {
      route: "GET /api/v1/environments",
      json: (list: ListedEnvironment[]) => list.map(environmentJson),
    },
    rpc: rpc(EnvironmentService.method.listEnvironments, asSent, (list: ListedEnvironment[]) => ({
      environments: list.map(environmentInfo),
    })),
    handle: ({ project_id }, { caller }) => environments.list(caller, project_id),
    lists: listedById(),
  }),
  unary({
    name: "environments.get",
    ...listFunctions,
    summary: "One environment.",
    input: Type.Object(byId),
    ...ofItself,
    output: EnvironmentShape,
    rest: { route: "GET /api/v1/environments/{id}", json: environmentJson },
    rpc: rpc(EnvironmentService.method.getEnvironment, asSent, environmentInfo),
    handle: ({ id }, { caller }) => environments.get(caller, id),
  }),
  unary({
    name: "environments.create",
    ...manage,
    summary: "An environment in the project, or in the org's oldest.",
    input: Type.Object({
      name: described(text, "Name of a-z, 0-9 and -, unique in the org: at most 63 characters."),
      project_id: Type.Optional(text),
      color: Type.Optional(described(text, "Color in the dashboard, such as `#2f6fed`.")),
    }),
    output: EnvironmentShape,
    rest: { route: "POST /api/v1/environments", status: 201, json: environmentJson },
    rpc: rpc(EnvironmentService.method.createEnvironment, asSent, environmentInfo),
    handle: ({ name, project_id, color }, { caller }) =>
      environments.create(caller, {
        name,
        ...(project_id && { projectId: project_id }),
        ...(color !== undefined && { color }),
      }),
  }),
  unary({
    name: "environments.update",
    ...manage,
    summary: "Renames an environment, gives it another color, or has failed runs emit an event.",
    input: Type.Object({
      ...byId,
      name: Type.Optional(
        described(text, "Name of a-z, 0-9 and -, unique in the org: at most 63 characters."),
      ),
      color: Type.Optional(described(text, "Color in the dashboard, such as `#2f6fed`.")),
      run_failed_events: maybe.flag("Whether each run that fails for good emits `svc.run.failed`."),
    }),
    ...ofItself,
    output: EnvironmentShape,
    rest: { route: "PUT /api/v1/environments/{id}", json: environmentJson },
    handle: ({ id, name, color, run_failed_events: tellsFailures }, { caller }) =>
      environments.update(caller, id, {
        ...stated({ name, color, tellsFailures }),
      }),
  }),
  unary({
    name: "environments.delete",
    ...manage,
    summary: "Deletes an environment with its keys and everything in it.",
    input: Type.Object(byId),
    ...ofItself,
    output: Type.Object({ status: described(text, "Always `deleted`.") }),
    rest: { route: "DELETE /api/v1/environments/{id}", json: () => ({ status: "deleted" }) },
    rpc: rpc(EnvironmentService.method.deleteEnvironment, asSent, () => ({ success: true })),
    handle: ({ id }, { caller }) => environments.remove(caller, id),
  }),
  unary({
    name: "environments.rotateKey",
    // The answer contains the text of a key: the caller must be allowed to create keys.
    action: "apikeys:manage",
    scope: "none",
    summary: "A new text for the environment's compatibility key; no later answer has it.",
    input: Type.Object(byId),
    ...ofItself,
    rpc: rpc(
      EnvironmentService.method.rotateAPIKey,
      asSent,
      ({ environment, key }: { environment: ListedEnvironment; key: string }) => ({
        id: environment.id,
        name: environment.name,
        apiKey: key,
      }),
    ),
    handle: ({ id }, { caller }) => environments.rotateKey(caller, id),
  }),
];
