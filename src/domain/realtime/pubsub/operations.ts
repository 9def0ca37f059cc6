import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow } from "../../../gate/things.ts";
import { PubSubService } from "../../../gen/svc/v1/pubsub_pb.ts";
import { rpcStream, stream } from "../../../kit/operation.ts";
import { changedListActions, listThingsOf, readsOf } from "./changed-lists.ts";
import { allOf, configOf, namesOf, parsedPattern, parsePattern, thingNamedBy } from "./rules.ts";
import { socketBinding } from "./socket-binding.ts";
import type { Streamed, SubscriptionStreams } from "./subscription-streams.ts";
import { fromOptions, toStreamMessage } from "./wire.ts";

/** Decimal digits, because a position may be larger than a JSON number holds. */
const Digits = Type.String({ pattern: "^[0-9]{1,20}$" });

const Subscribe = Type.Object({
  pattern: Type.String(),
  replay: Type.Optional(Type.Integer()),
  includeMetadata: Type.Optional(Type.Boolean()),
  filter: Type.Optional(Type.String()),
  consumerGroup: Type.Optional(Type.String()),
  startAfterSequence: Type.Optional(Digits),
  withStart: Type.Optional(Type.Boolean()),
  withPositions: Type.Optional(Type.Boolean()),
  epoch: Type.Optional(Digits),
});

/** What the gate is asked about of a subscription. */
type SubscribeGateInput = Pick<Static<typeof Subscribe>, "pattern" | "consumerGroup">;

const action = "events:subscribe";

/** Also the operation that the gate checks for a WebSocket and for each of its subscriptions. */
export const subscribeOperation = (streams: SubscriptionStreams) =>
  stream({
    name: "pubsub.subscribe",
    action,
    summary: "Events and frames on the topics of a pattern, as they happen.",
    sample: {
      pattern: "events:order.*",
      options: { filter: "event.data.total > 100", startAfterSequence: "4711" },
    },
    reads: true,
    waitsFor: "feed",
    // The platform's own credentials have the frames of the platform's lists, and no others.
    platformAction: "platform:tenants:read",
    about({ pattern: text, consumerGroup }: SubscribeGateInput) {
      const pattern = parsePattern(text);
      const shown = [
        ...namesOf(pattern),
        ...thingNamedBy(pattern),
        ...configOf(pattern),
        ...listThingsOf(pattern),
      ];
      return consumerGroup ? [...shown, `group:${consumerGroup}`, ...allOf(pattern)] : shown;
    },
    alsoAsks: [
      ...new Set(
        ["events:emit", ...changedListActions, ...actionsThatShow("config", "run", "stream")].filter(
          (one) => one !== action,
        ),
      ),
    ],
    // A member of a group takes deliveries from the others, and creates the group where there is none. Frames
    // of config carry the documents, those of changed lists belong to who may read the lists.
    costs({ pattern: text, consumerGroup }: SubscribeGateInput) {
      const pattern = parsedPattern(text);
      return [
        ...(consumerGroup ? ["events:emit"] : []),
        ...(pattern?.namespace === "config" ? ["secrets:read"] : []),
        ...(pattern ? readsOf(pattern) : []),
      ];
    },
    input: Subscribe,
    rpc: rpcStream(
      PubSubService.method.subscribe,
      (m) => fromOptions(m.pattern, m.options),
      (one: Streamed) => toStreamMessage(one),
    ),
    socket: socketBinding,
    handle: ({ startAfterSequence, epoch, ...input }, call, permit) =>
      streams.subscribe(
        call.environmentId,
        {
          ...input,
          ...(startAfterSequence !== undefined && { startAfterSequence: BigInt(startAfterSequence) }),
          ...(epoch !== undefined && { epoch: BigInt(epoch) }),
        },
        {
          signal: call.signal,
          holder: call.caller.id,
          permit: (pattern) => permit({ pattern, consumerGroup: input.consumerGroup }),
          admitted: () => call.admitted?.(),
          caller: call,
        },
      ),
  });
