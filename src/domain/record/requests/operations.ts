import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { shape } from "../../../kit/described.ts";
import { type Operation, unary } from "../../../kit/operation.ts";
import { CapturedRequest } from "./rules.ts";
import type { CapturedRequests } from "./service.ts";

export const requestsOperations = (captured: CapturedRequests): Operation[] => [
  unary({
    name: "debug.requests",
    action: "orgs:read",
    scope: "none",
    reads: true,
    summary: "The org's last requests at all nodes, without credentials; the first call begins to capture.",
    input: Type.Object({}),
    output: Type.Object({
      requests: Type.Array(CapturedRequest, { description: "Requests, newest first." }),
      count: shape.count("How many there are."),
      capturing_until: shape.time("Requests are captured until then; each call moves it."),
    }),
    rest: "GET /api/v1/debug/requests",
    async handle(_, { caller }) {
      const { requests, until } = await captured.list(caller.orgId);
      return { requests, count: requests.length, capturing_until: rfc3339(until) };
    },
  }),
  unary({
    name: "debug.clear",
    action: "orgs:manage",
    scope: "none",
    summary: "Forgets the captured requests of the org at all nodes.",
    input: Type.Object({}),
    rest: "DELETE /api/v1/debug/requests",
    handle: (_, { caller }) => captured.clear(caller.orgId),
  }),
];
