import { Type } from "@sinclair/typebox";
import { PubSubService } from "../../gen/svc/v1/pubsub_pb.ts";
import { rpcStream, stream } from "../../kit/operation.ts";
import { namesOf, parsePattern } from "./rules.ts";
import type { Streamed, Streams } from "./stream.ts";
import { fromOptions, toEventMessage } from "./wire.ts";

const Subscribe = Type.Object({
  pattern: Type.String(),
  replay: Type.Optional(Type.Integer()),
  includeMetadata: Type.Optional(Type.Boolean()),
  filter: Type.Optional(Type.String()),
  consumerGroup: Type.Optional(Type.String()),
  /** Decimal digits: it may be larger than a JSON number holds. */
  startAfterSequence: Type.Optional(Type.String({ pattern: "^[0-9]{1,20}$" })),
});

/** Also what the gate asks of a WebSocket and of each of its subscriptions. */
export const subscribeOperation = (streams: Streams) =>
  stream({
    name: "pubsub.subscribe",
    action: "events:subscribe",
    summary: "Events and frames on the topics of a pattern, as they happen.",
    reads: true,
    about: ({ pattern }: { pattern: string }) => namesOf(parsePattern(pattern)),
    input: Subscribe,
    rpc: rpcStream(
      PubSubService.method.subscribe,
      (m) => fromOptions(m.pattern, m.options),
      ({ spec, delivery }: Streamed) => toEventMessage(spec, delivery),
    ),
    handle: ({ startAfterSequence, ...input }, call) =>
      streams.subscribe(
        call.environmentId,
        {
          ...input,
          ...(startAfterSequence !== undefined && { startAfterSequence: BigInt(startAfterSequence) }),
        },
        call.signal,
      ),
  });
