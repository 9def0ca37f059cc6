import { Type } from "@sinclair/typebox";
import { actionsThatShow, asksOf, screenOfAsks, thingsOf } from "../../../gate/things.ts";
import {
  CausalityService,
  CausalLinkSchema,
  CausalThingSchema,
  GetCausalityResponseSchema,
} from "../../../gen/svc/v1/causality_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { maybe } from "../../../kit/described.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import { type Call, type Operation, rpc, type Thing, unary } from "../../../kit/operation.ts";
import { asSent, requestOf } from "../../../kit/request.ts";
import { messageOf } from "../../../kit/wkt.ts";
import { causalDepthDefault, causalDepthMax, causalThingsDefault, causalThingsMax } from "./limits.ts";
import {
  type CausalLink,
  causalKinds,
  countOf,
  directionsOf,
  kindOf,
  positionOf,
  readPair,
} from "./rules.ts";
import type { CancelledTree, CausalAnswer, Causality, Hides } from "./service.ts";
import type { CausalThing } from "./things.ts";

const shown = (...examples: string[]) => Type.String({ examples });
const eventId = "evt_01kf3m8q4v7x2n9t5c6b1d0e8g";
const runId = "run_01kf3m8q4v7x2n9t5c6b1d0e8g";

export const Thing_ = shapeOf(CausalThingSchema, {
  absent: "entity_id entity_version",
  own: { kind: shown("event"), id: shown(eventId) },
});

const Link = shapeOf(CausalLinkSchema, {
  own: {
    ...{ cause_kind: shown("event"), cause_id: shown(eventId) },
    ...{ effect_kind: shown("run"), effect_id: shown(runId), relation: shown("started") },
  },
});

const thingJson = ({ kind, id, name, status, at, depth, entity }: CausalThing) => ({
  ...{ kind, id, name, status, at: rfc3339(at), depth },
  ...(entity && { entity_id: entity.id, entity_version: entity.version }),
});

const linkJson = ({ cause, effect, relation }: CausalLink) => ({
  ...{ cause_kind: cause.kind, cause_id: cause.id, effect_kind: effect.kind, effect_id: effect.id, relation },
});

/** Policies about what is asked for by its id; those about names are asked for each thing of the answer. */
const aboutId = ({ kind, id }: { kind: string; id: string }): (string | Thing)[] => [
  id,
  ...(kind === "run" ? thingsOf("run", id) : []),
];

const asks = [...asksOf("event", "stream", "run", "webhook"), { action: "runs:cancel", type: "run" }];

async function hiderOf(call: Call): Promise<Hides> {
  const screen = await screenOfAsks(call, asks);
  return async (things) => screen?.refusalOf(things);
}

function idOf(kind: string, id: string): string {
  if (kind === "message") return String(positionOf(id));
  if (kind === "step" || kind === "letter") readPair(id);
  return id;
}

export const CausalityShape = shapeOf(GetCausalityResponseSchema, {
  own: { things: Type.Array(Thing_), links: Type.Array(Link) },
});

const answerJson = ({ things, links, isTruncated, hiddenCount }: CausalAnswer) => ({
  ...{ things: things.map(thingJson), links: links.map(linkJson) },
  ...{ truncated: isTruncated, hidden: hiddenCount },
});

export const causalityOperations = (causality: Causality): Operation[] => [
  unary({
    name: "causality.get",
    action: "runs:read",
    alsoAsks: actionsThatShow("event", "stream", "webhook"),
    costs: () => ["events:subscribe", "webhooks:read"],
    summary:
      "What led to a thing and what it led to, level by level: events, runs, appends, messages, webhooks.",
    reads: true,
    waitsFor: "log",
    input: Type.Object({
      kind: Type.String({ minLength: 1, maxLength: 20, description: `One of ${causalKinds.join(", ")}.` }),
      id: Type.String({
        minLength: 1,
        maxLength: 2_048,
        description:
          "Of a step the run's id, a slash and the step's; of a message its sequence; of a letter the endpoint's id, a slash and the event's.",
      }),
      direction: Type.Optional(
        Type.String({ maxLength: 20, description: "causes, effects, or both when left out." }),
      ),
      depth: maybe.count(`Levels, 1 to ${causalDepthMax}; ${causalDepthDefault} when left out.`),
      limit: maybe.count(`Things, 1 to ${causalThingsMax}; ${causalThingsDefault} when left out.`),
    }),
    about: aboutId,
    output: CausalityShape,
    rest: { route: "GET /api/v1/causality", json: answerJson },
    rpc: rpc(CausalityService.method.getCausality, asSent, (answer: CausalAnswer) =>
      messageOf(GetCausalityResponseSchema)(answerJson(answer)),
    ),
    handle: async ({ kind, id, direction = "", depth, limit }, call) =>
      causality.explain(
        call.environmentId,
        {
          thing: { kind: kindOf(kind), id: idOf(kind, id) },
          directions: directionsOf(direction),
          depth: countOf("depth", depth, { fallback: causalDepthDefault, most: causalDepthMax }),
          most: countOf("limit", limit, { fallback: causalThingsDefault, most: causalThingsMax }),
        },
        await hiderOf(call),
      ),
  }),
  unary({
    name: "runs.cancelSubtree",
    action: "runs:cancel",
    summary: "Cancels a run and the runs that it led to, by invokes and by events.",
    ...requestOf(
      CausalityService.method.cancelSubtree,
      ({ cancelled, overCount, hiddenCount, isTruncated }: CancelledTree) => ({
        ...{ cancelled, over: overCount, hidden: hiddenCount, truncated: isTruncated },
      }),
      {
        runId: Type.String({ minLength: 1, maxLength: 200 }),
        reason: Type.Optional(Type.String({ maxLength: 100_000 })),
      },
    ),
    about: ({ runId }: { runId: string }) => [{ type: "run", id: runId }],
    handle: async ({ runId, reason = "" }, call) =>
      causality.cancelSubtree(call.environmentId, { runId, reason }, await hiderOf(call)),
  }),
];
