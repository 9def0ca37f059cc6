import { FormatRegistry, type Static, type TObject, Type } from "@sinclair/typebox";
import { described, maybe, shape } from "../../../kit/described.ts";
import type { SocketBinding, SocketFrame } from "../../../kit/socket-binding.ts";
import { patternBytesMax, replayMax, subscriptionsMax } from "./limits.ts";
import type { SubscribeInput } from "./options.ts";
import { socketCodes } from "./rules.ts";

const sequenceMax = 2n ** 64n - 1n;

FormatRegistry.Set("uint64", (text) => /^\d{1,20}$/.test(text) && BigInt(text) <= sequenceMax);

const Position = (description: string) => Type.String({ format: "uint64", description });

const Options = Type.Object(
  {
    replay: maybe.count(`Deliveries of the past that come first, at most ${replayMax}.`),
    includeMetadata: maybe.flag("Whether events carry `meta`."),
    topicOnly: maybe.flag("Whether `data` of events is null."),
    filter: maybe.text(
      "CEL over `data`, `metadata`, `topic` and `event`: deliveries for which it is false are left out.",
    ),
    consumerGroup: maybe.text("Takes part in this group, which costs `events:emit` besides."),
    startAfterSequence: Type.Optional(
      Position(
        "Begins behind this `meta.sequence`; as digits or an integer. Not with `replay` or `consumerGroup`.",
      ),
    ),
    withStart: maybe.flag("Whether the answer says where the subscription begins."),
    withPositions: maybe.flag("Whether a `position` comes now and then while nothing else does."),
    epoch: Type.Optional(
      Position("Of the log in which that was seen; as digits or an integer. Another log is refused."),
    ),
  },
  {
    description:
      "`ackMode`, `backpressure` and `namespace` are passed over as others are; null is as good as none.",
  },
);

const Subscription = Type.Object({
  pattern: shape.text(`At most ${patternBytesMax} bytes: \`events:order.*\`.`),
  options: Type.Optional(Options),
});

const Code = Type.Union(
  socketCodes.map((code) => Type.Literal(code)),
  {
    description:
      "Clients compare it. INVALID_PATTERN: the pattern or the frame cannot be read. INVALID_ARGUMENT: an option " +
      "cannot be served. LIMIT_EXCEEDED: too many subscriptions, too long a replay, too dear a filter. " +
      "PERMISSION_DENIED: roles or policies refuse the pattern. INTERNAL_ERROR: a failure of the server.",
  },
);
const Message = shape.text("For people: what is wrong, where, and what is allowed.");
const SubscriptionId = shape.text(
  "Follows from environment, pattern and options: the same after a reconnect, on any node.",
);

/** A frame that the client sends, and what the session gets of it. */
const clientFrame = <S extends TObject, F>(about: string, schema: S, decode: (fields: Static<S>) => F) => ({
  about,
  schema,
  decode,
});

function subscribeInput({ pattern, options = {} }: Static<typeof Subscription>): SubscribeInput {
  const { startAfterSequence, epoch } = options;
  return {
    pattern,
    replay: options.replay,
    includeMetadata: options.includeMetadata,
    topicOnly: options.topicOnly,
    filter: options.filter,
    consumerGroup: options.consumerGroup,
    startAfterSequence: startAfterSequence === undefined ? undefined : BigInt(startAfterSequence),
    withStart: options.withStart,
    withPositions: options.withPositions,
    epoch: epoch === undefined ? undefined : BigInt(epoch),
  };
}

/** Whatever a client sent in place of a text is not written out: its own `toString` could be anything. */
const shownText = (value: unknown, charsMax: number): string =>
  typeof value === "string" ? value.slice(0, charsMax) : "";

/** Frames of the client, by `type`. `SubscriberSession` has a handler for each. */
export const clientFrames = {
  subscribe: clientFrame(
    "Asks for what is delivered on a pattern. `subscription_result` answers it, and `subscription_error` one without " +
      `a pattern. At most ${subscriptionsMax} subscriptions on one connection.`,
    Type.Object({ subscription: described(Subscription, "What is subscribed to.") }),
    ({ subscription }) => ({ type: "subscribe" as const, input: subscribeInput(subscription) }),
  ),
  unsubscribe: clientFrame(
    "Ends a subscription. Only one that cannot be read is answered, by `subscription_error`.",
    Type.Object({ subscriptionId: Type.String() }),
    ({ subscriptionId }) => ({ type: "unsubscribe" as const, subscriptionId }),
  ),
  ack: clientFrame(
    "Settles a delivery of a `consumerGroup` with ack mode manual, as `PubSubService/AckEvent` does for the member " +
      "on this socket; for others logged only. Not answered.",
    Type.Object({
      eventId: Type.Optional(Type.Unknown({ description: "Text: that of an `event`." })),
      ackType: Type.Optional(Type.Unknown({ description: "Text: `ack`, `nak` or `term`." })),
      redeliverDelay: Type.Optional(Type.Unknown({ description: "An integer: milliseconds, of a `nak`." })),
      subscriptionId: Type.Optional(
        Type.Unknown({
          description: "Text. Without it: the only one of this socket that was given the event.",
        }),
      ),
    }),
    ({ eventId, ackType, redeliverDelay, subscriptionId }) => ({
      type: "ack" as const,
      eventId: shownText(eventId, 100),
      ackType: shownText(ackType, 10),
      redeliverDelay: Number.isInteger(redeliverDelay) ? (redeliverDelay as number) : undefined,
      subscriptionId: shownText(subscriptionId, 100),
    }),
  ),
};

const Result = Type.Object({
  pattern: shape.text("Exactly as it was sent."),
  status: Type.Union([Type.Literal("ok"), Type.Literal("error")], {
    description: "`ok`, or `error` with its code.",
  }),
  subscriptionId: Type.Optional(SubscriptionId),
  consumerId: maybe.text("Of a `consumerGroup`: names this member alone, as `GetConsumerGroup` does."),
  startSequence: Type.Optional(Position("Behind which it begins, when `withStart` asked.")),
  epoch: Type.Optional(Position("Of the log, when `withStart` asked.")),
  code: Type.Optional(Code),
  message: Type.Optional(Message),
  reason: maybe.text("Why a position is refused: `epoch_changed`, `position_ahead` or `position_expired`."),
});

const Meta = Type.Object({
  timestamp: shape.text("When it happened, RFC 3339."),
  sequence: Type.Optional(Type.Integer()),
  sequenceExact: Type.Optional(Position("The same as text, for readers whose numbers end at 2^53.")),
  custom: Type.Optional(Type.Unknown({ description: "The metadata that the event was emitted with." })),
});

/** Frames of the server, by `type`. */
export const serverFrames = {
  subscription_result: {
    about: "Answers a `subscribe`.",
    schema: Type.Object({
      results: Type.Array(Result, { minItems: 1, maxItems: 1, description: "What became of it." }),
    }),
  },
  subscribed: {
    about: "Follows a `subscription_result` of status ok, for clients that offered no subprotocol.",
    schema: Type.Object({
      subscriptionId: SubscriptionId,
      pattern: shape.text("Exactly as it was sent."),
    }),
  },
  event: {
    about: "A delivery: an event, a message of a topic, or a frame of `system.*`.",
    schema: Type.Object({
      subscriptionId: SubscriptionId,
      eventId: maybe.text("Of events and of messages of topics."),
      topic: shape.text("With its namespace: `events:order.placed`."),
      data: Type.Unknown({ description: "The payload; null with `topicOnly`." }),
      meta: Type.Optional(described(Meta, "When, and with what; with `includeMetadata`.")),
    }),
  },
  position: {
    about: "All that matches has come up to here, for subscriptions with `withPositions`.",
    schema: Type.Object({
      subscriptionId: SubscriptionId,
      sequence: Position("What `startAfterSequence` takes after a reconnect."),
    }),
  },
  subscription_error: {
    about:
      "A subscription is over, or in trouble when `retrying`; or a `subscribe` or `unsubscribe` cannot be read.",
    schema: Type.Object({
      subscriptionId: shape.text("Empty for a frame that names none."),
      code: Code,
      message: Message,
      retrying: shape.flag("Whether the subscription goes on by itself."),
    }),
  },
  error: {
    about: "Answers any other frame that cannot be read. The connection stays open.",
    schema: Type.Object({ code: Code, message: Message }),
  },
} satisfies Record<string, SocketFrame>;

export const socketBinding: SocketBinding = { client: clientFrames, server: serverFrames };
