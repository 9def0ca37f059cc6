import { Type } from "@sinclair/typebox";
import { thingsOf } from "../../../gate/things.ts";
import { recordJson } from "../../../kit/cases.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { functionDefinitionBytesMax } from "../../../kit/limits.ts";
import { listed, type Operation, unary } from "../../../kit/operation.ts";
import type { Breaker, Breakers } from "./service.ts";

const text = Type.String();

export const BreakerShape = Type.Object({
  key: described(text, "Names the breaker: `{functionID}|{endpointURL}`. A path takes it in base64url."),
  function_id: text,
  endpoint: described(text, "URL of the function's endpoint."),
  state: described(text, "`closed` (calls go) or `open` (none go, save one that tries)."),
  consecutive_fails: shape.count("Calls in a row that failed."),
  last_failure: maybe.time("When a call failed last, RFC 3339."),
});

const breakerJson = (breaker: Breaker) => ({
  ...recordJson(breaker, "key functionId endpoint state consecutiveFails"),
  ...(breaker.lastFailure !== undefined && { last_failure: rfc3339(breaker.lastFailure) }),
});

/** Of a key in base64url: as long as a definition, and so an endpoint, may be. */
const keyCharsMax = Math.ceil((functionDefinitionBytesMax * 4) / 3);

export const breakersOperations = (breakers: Breakers): Operation[] => [
  unary({
    name: "breakers.list",
    action: "functions:list",
    reads: true,
    summary: "Endpoints of push functions, webhooks and agents that failed recently.",
    input: Type.Object({}),
    output: Type.Array(BreakerShape),
    rest: "GET /api/v1/circuit-breakers",
    lists: listed(({ key }: { key: string }) => [key], {
      shows: ({ function_id: id }: { function_id: string }) => thingsOf("function", id),
    }),
    handle: async (_input, call) => (await breakers.list(call.environmentId)).map(breakerJson),
  }),
  unary({
    name: "breakers.reset",
    action: "functions:invoke",
    summary: "Closes a breaker; `key` is unpadded base64url of `{functionID}|{endpointURL}`.",
    input: Type.Object({
      key: Type.String({
        minLength: 1,
        maxLength: keyCharsMax,
        description: "Unpadded base64url of `{functionID}|{endpointURL}`.",
      }),
    }),
    output: BreakerShape,
    rest: "POST /api/v1/circuit-breakers/{key}/reset",
    handle: async ({ key }, call) => breakerJson(await breakers.reset(call.environmentId, key)),
  }),
];
