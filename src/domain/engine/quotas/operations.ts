import { Type } from "@sinclair/typebox";
import { type Operation, unary } from "../../../kit/operation.ts";
import { quotaConcurrentRunsMax, quotaRunsPerMinuteMax, quotaStoredBytesMax } from "./limits.ts";
import type { Quotas } from "./service.ts";
import { QuotaShape, quotaJson } from "./wire.ts";

const limit = (most: number, description: string) =>
  Type.Optional(Type.Union([Type.Integer({ minimum: 0, maximum: most }), Type.Null()], { description }));

const id = Type.String({ minLength: 1, description: "Id of the environment (`env_…`)." });

const Shown = Type.Object({
  quotas: Type.Array(QuotaShape, { description: "Quotas that have a limit." }),
});

const ofItself = {
  scope: "none" as const,
  environmentOf: ({ id }: { id: string }) => id,
  special: { crossesOrgs: true },
  output: Shown,
};

export const quotasOperations = (quotas: Quotas): Operation[] => [
  unary({
    name: "quotas.get",
    action: "functions:list",
    platformAction: "platform:tenants:read",
    reads: true,
    summary: "What the environment may use, and what of it is used.",
    input: Type.Object({ id }),
    ...ofItself,
    rest: "GET /api/v1/environments/{id}/quotas",
    handle: async (input, { caller }) => ({
      quotas: (await quotas.show(caller, input.id)).map(quotaJson),
    }),
  }),
  unary({
    name: "quotas.set",
    // As every change of an environment.
    action: "secrets:manage",
    platformAction: "platform:tenants:manage",
    summary:
      "Limits what the environment may use. The platform sets its limits; the environment's own may only be lower.",
    input: Type.Object({
      id,
      runs_per_minute: limit(
        quotaRunsPerMinuteMax,
        "Runs that begin in a minute of the clock; null takes the limit back.",
      ),
      stored_bytes: limit(
        quotaStoredBytesMax,
        "Bytes of events, delayed events, messages of topics, and values of keys with their history; null takes the limit back.",
      ),
      concurrent_runs: limit(
        quotaConcurrentRunsMax,
        "Runs that are not over, those that wait or sleep included; null takes the limit back.",
      ),
    }),
    ...ofItself,
    rest: "PUT /api/v1/environments/{id}/quotas",
    handle: async ({ id: environmentId, ...change }, { caller }) => ({
      quotas: (await quotas.set(caller, environmentId, change)).map(quotaJson),
    }),
  }),
];
