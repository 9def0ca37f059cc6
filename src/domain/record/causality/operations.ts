import { Type } from "@sinclair/typebox";
import { actionsThatShow, asksOf, screenOfAsks, thingsOf } from "../../../gate/things.ts";
import { CausalityService } from "../../../gen/svc/v1/causality_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { maybe, shape } from "../../../kit/described.ts";
import { type Call, type Operation, rpc, type Thing, unary } from "../../../kit/operation.ts";
import { timestampOf } from "../../../kit/wkt.ts";
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

const text = Type.String();
const count = Type.Integer();

const Named = (about: string, ...examples: string[]) =>
  Type.String({ description: about, ...(examples.length > 0 && { examples }) });
const eventId = "evt_01kf3m8q4v7x2n9t5c6b1d0e8g";
const runId = "run_01kf3m8q4v7x2n9t5c6b1d0e8g";

export const Thing_ = Type.Object({
  kind: Named(`One of ${causalKinds.join(", ")}.`, "event"),
  id: Named("Id of the thing, as requests name it.", eventId),
  name: Named(
    "The event's name, the run's function, the step's name, the topic, the webhook source or endpoint.",
  ),
  status: Named("Of a run, a step and a delivery; else empty."),
  at: shape.time("When it came to be."),
  depth: shape.count("Steps away from what was asked about; negative for causes."),
  entity_id: Type.Optional(Named("The stream that the event was appended to.")),
  entity_version: maybe.count("Version of the event in that stream."),
});

const Link = Type.Object({
  cause_kind: Named("Kind of the cause.", "event"),
  cause_id: Named("Id of the cause.", eventId),
  effect_kind: Named("Kind of the effect.", "run"),
  effect_id: Named("Id of the effect.", runId),
  relation: Named("started, emitted, appended, published, invoked, took, brought or undelivered.", "started"),
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

export const CausalityShape = Type.Object({
  things: Type.Array(Thing_, { description: "By distance, causes first." }),
  links: Type.Array(Link, { description: "Between the things that are shown." }),
  truncated: shape.flag("There is more, further away or beside."),
  hidden: shape.count("Things that deny policies keep from the caller."),
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
    rest: {
      route: "GET /api/v1/causality",
      encode: ({ things, links, isTruncated, hiddenCount }: CausalAnswer) => ({
        status: 200,
        body: {
          things: things.map(thingJson),
          links: links.map(linkJson),
          truncated: isTruncated,
          hidden: hiddenCount,
        },
      }),
    },
    rpc: rpc(
      CausalityService.method.getCausality,
      (m) => ({ kind: m.kind, id: m.id, direction: m.direction, depth: m.depth, limit: m.limit }),
      ({ things, links, isTruncated, hiddenCount }: CausalAnswer) => ({
        things: things.map(({ kind, id, name, status, at, depth, entity }) => ({
          ...{ kind, id, name, status, at: timestampOf(at), depth },
          ...(entity && { entityId: entity.id, entityVersion: BigInt(entity.version) }),
        })),
        links: links.map(({ cause, effect, relation }) => ({
          ...{
            causeKind: cause.kind,
            causeId: cause.id,
            effectKind: effect.kind,
            effectId: effect.id,
            relation,
          },
        })),
        truncated: isTruncated,
        hidden: hiddenCount,
      }),
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
    input: Type.Object({
      runId: Type.String({ minLength: 1, maxLength: 200 }),
      reason: Type.Optional(Type.String({ maxLength: 100_000 })),
    }),
    about: ({ runId }: { runId: string }) => [{ type: "run", id: runId }],
    output: Type.Object({
      cancelled: Type.Array(text),
      over: count,
      hidden: count,
      truncated: Type.Boolean(),
    }),
    rpc: rpc(
      CausalityService.method.cancelSubtree,
      (m) => ({ runId: m.runId, reason: m.reason }),
      ({ cancelled, overCount, hiddenCount, isTruncated }: CancelledTree) => ({
        ...{ cancelled, over: overCount, hidden: hiddenCount, truncated: isTruncated },
      }),
    ),
    handle: async ({ runId, reason = "" }, call) =>
      causality.cancelSubtree(call.environmentId, { runId, reason }, await hiderOf(call)),
  }),
];
