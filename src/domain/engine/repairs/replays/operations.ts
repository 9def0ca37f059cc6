import { type Static, Type } from "@sinclair/typebox";
import { hiderOfEvents } from "../../../../gate/things.ts";
import {
  type ReplayEvents as EventsMessage,
  PreviewReplayResponseSchema,
  RepairService,
} from "../../../../gen/svc/v1/repair_pb.ts";
import { inSnakeCase } from "../../../../kit/cases.ts";
import { rfc3339 } from "../../../../kit/clock.ts";
import { maybe } from "../../../../kit/described.ts";
import { shapeOf } from "../../../../kit/message-shape.ts";
import { type Operation, rpc, type Thing, unary } from "../../../../kit/operation.ts";
import { asGiven } from "../../../../kit/request.ts";
import { messageOf } from "../../../../kit/wkt.ts";
import type { Repairs } from "../service.ts";
import { jsonWith, RepairOut, repairAnswer, toRepair } from "../wire.ts";
import type { ReplayEvents } from "./rules.ts";
import type { ReplayPreview } from "./service.ts";

const replayPreviewJson = ({ samples, ...preview }: ReplayPreview) => ({
  ...{ from_position: preview.from, to_position: preview.to, scanned: preview.scanned },
  ...{ truncated: preview.isTruncated, matched: preview.matched, with_run: preview.withRun },
  to_start: preview.toStart,
  samples: samples.map(({ id, name, position, at, hasRun }) => ({
    ...{ event_id: id, name, position, at: rfc3339(at), has_run: hasRun },
  })),
});

const toReplayPreview = (preview: ReplayPreview) =>
  messageOf(PreviewReplayResponseSchema)(replayPreviewJson(preview));

const text = (description: string) => Type.Optional(Type.String({ maxLength: 2_048, description }));
/** Empty it would mean all events. */
const bound = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 2_048, description }));
const place = (minimum: number, description: string) => Type.Optional(Type.Integer({ minimum, description }));

const Events = Type.Object(
  {
    pattern: bound(
      "An event's name, or a pattern with `*` and a last `>`; the function's own triggers when left out.",
    ),
    filter: bound("CEL over `event` and `data`; an event for which it fails does not match."),
    from_position: place(0, "The first position; the oldest event that is kept when left out."),
    to_position: place(1, "The last position; the end of the log when left out."),
    since: bound("RFC 3339: events of then or later, in place of `from_position`."),
    until: bound("RFC 3339: events of then or earlier, in place of `to_position`."),
    again: maybe.flag("Also events that the function has a run of."),
  },
  {
    description: "Which events of the past.",
    examples: [{ pattern: "order.*", filter: "data.total > 100", since: "2026-01-15T00:00:00Z" }],
  },
);

const FunctionId = Type.String({ minLength: 1, maxLength: 400 });

const eventsIn = ({ from_position, to_position, ...rest }: Static<typeof Events> = {}): ReplayEvents => ({
  ...rest,
  ...{ fromPosition: from_position, toPosition: to_position },
});

/** Unset fields of a message are empty. */
const eventsOut = (m: EventsMessage | undefined): Static<typeof Events> => (m ? inSnakeCase(asGiven(m)) : {});

interface AskedReplay {
  function_id: string;
  then_live?: boolean | undefined;
}

const alsoAsks = ["events:subscribe", "functions:register"];

/** Who replays reads the events, and registers anew what goes live. */
const costs = ({ then_live }: AskedReplay) => (then_live ? alsoAsks : ["events:subscribe"]);

const about = ({ function_id: id, then_live }: AskedReplay): Thing[] => [
  { type: "function", id },
  ...(then_live ? [{ type: "function", id, action: "functions:register" }] : []),
];

export const ReplayPreviewShape = shapeOf(PreviewReplayResponseSchema);

export const replaysOperations = ({ replays }: Repairs): Operation[] => [
  unary({
    name: "replays.preview",
    action: "functions:invoke",
    reads: true,
    alsoAsks: ["events:subscribe"],
    ...{ costs, about },
    summary: "Which events of the past a replay would start a function on, and ten of them.",
    input: Type.Object({ function_id: FunctionId, events: Type.Optional(Events) }),
    output: ReplayPreviewShape,
    rest: { route: "POST /api/v1/replays/preview", json: replayPreviewJson },
    rpc: rpc(
      RepairService.method.previewReplay,
      (m) => ({ function_id: m.functionId, events: eventsOut(m.events) }),
      toReplayPreview,
      jsonWith("events"),
    ),
    async handle({ function_id: functionId, events: asked }, call) {
      const hides = await hiderOfEvents(call);
      return replays.preview(call.environmentId, { functionId, events: eventsIn(asked) }, hides);
    },
  }),
  unary({
    name: "replays.start",
    action: "functions:invoke",
    ...{ alsoAsks, costs, about },
    summary:
      "Starts one function on events of the past, in the background: a repair whose action is `replay`.",
    input: Type.Object({
      function_id: FunctionId,
      events: Type.Optional(Events),
      then_live: maybe.flag(
        "The function becomes active where the window ends: its triggers start every later event.",
      ),
      reason: text("Why; at most 1,024 characters."),
    }),
    output: RepairOut,
    rest: { route: "POST /api/v1/replays", ...repairAnswer(201) },
    rpc: rpc(
      RepairService.method.startReplay,
      (m) => ({
        ...{ function_id: m.functionId, events: eventsOut(m.events) },
        ...{ then_live: m.thenLive, reason: m.reason },
      }),
      toRepair,
      jsonWith("events"),
    ),
    handle: ({ function_id: functionId, events: asked, then_live: thenLive, reason }, call) =>
      replays.start(call.environmentId, call.caller, {
        ...{ functionId, events: eventsIn(asked), thenLive, reason },
      }),
  }),
];
