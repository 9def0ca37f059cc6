import { type Static, Type } from "@sinclair/typebox";
import { hiderOfEvents } from "../../../../gate/things.ts";
import { type ReplayEvents as EventsMessage, RepairService } from "../../../../gen/svc/v1/repair_pb.ts";
import { rfc3339 } from "../../../../kit/clock.ts";
import { maybe, shape } from "../../../../kit/described.ts";
import { type Operation, rpc, type Thing, unary } from "../../../../kit/operation.ts";
import { instantOf, safeCount } from "../../../../kit/wkt.ts";
import type { Repairs } from "../service.ts";
import { jsonWith, RepairOut, repairAnswer, toRepair } from "../wire.ts";
import type { ReplayEvents } from "./rules.ts";
import { replayPreviewJson, toReplayPreview } from "./wire.ts";

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

const places = ["fromPosition", "toPosition"];

const FunctionId = Type.String({ minLength: 1, maxLength: 400 });

const eventsIn = ({ from_position, to_position, ...rest }: Static<typeof Events> = {}): ReplayEvents => ({
  ...rest,
  ...{ fromPosition: from_position, toPosition: to_position },
});

/** Unset fields of a message are empty. */
const eventsOut = (m: EventsMessage | undefined): Static<typeof Events> => ({
  ...(m?.pattern && { pattern: m.pattern }),
  ...(m?.filter && { filter: m.filter }),
  ...(m?.fromPosition && { from_position: safeCount(m.fromPosition) }),
  ...(m?.toPosition && { to_position: safeCount(m.toPosition) }),
  ...(m?.since && { since: rfc3339(instantOf(m.since)) }),
  ...(m?.until && { until: rfc3339(instantOf(m.until)) }),
  ...(m?.again && { again: true }),
});

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

export const ReplayPreviewShape = Type.Object({
  from_position: shape.count("The first position of the window."),
  to_position: shape.count("The last position of the window."),
  scanned: shape.count(
    "Events that were looked at, from the beginning of the window: at most 100,000, for two seconds.",
  ),
  truncated: shape.flag("The window has more events than were looked at."),
  matched: shape.count("Those of them that match."),
  with_run: shape.count("Those of the matching ones that the function has a run of."),
  to_start: shape.count("Runs that a replay would start of what was looked at."),
  samples: Type.Array(
    Type.Object({
      event_id: Type.String(),
      name: shape.text("The event's name."),
      position: shape.count("Its place in the log."),
      at: shape.time("When it was written."),
      has_run: shape.flag("The function has a run of it."),
    }),
    { description: "The first matching ones." },
  ),
});

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
      jsonWith("events", places),
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
      jsonWith("events", places),
    ),
    handle: ({ function_id: functionId, events: asked, then_live: thenLive, reason }, call) =>
      replays.start(call.environmentId, call.caller, {
        ...{ functionId, events: eventsIn(asked), thenLive, reason },
      }),
  }),
];
