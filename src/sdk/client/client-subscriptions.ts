import { openSubscription } from "../subscriptions/subscription.ts";
import { eitherWay, socketWay } from "../subscriptions/subscription-socket.ts";
import { streamWay } from "../subscriptions/subscription-stream.ts";
import type { SubscribeCalls, SubscribeOptions } from "../subscriptions/subscription-types.ts";
import type { Way } from "../subscriptions/subscription-ways.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import type { Transport } from "../wire/transport.ts";
import type { EventMap } from "../wire/types.ts";

const known: KnownOptions<SubscribeOptions> = {
  ...{ filter: true, replay: true, topicOnly: true, includeMetadata: true, after: true, signal: true },
  ...{ over: true, bufferMax: true, onGap: true, onNotice: true },
};

export function subscribeCalls<Events extends EventMap>(transport: Transport): SubscribeCalls<Events> {
  const stream = streamWay(transport);
  let socket: Way | undefined;
  const wayOf = (over: NonNullable<SubscribeOptions["over"]>): Way => {
    if (over === "connect" || (over === "auto" && typeof WebSocket === "undefined")) return stream;
    if (typeof WebSocket === "undefined")
      throw new TypeError("over: there are no WebSockets here (Node has them from 22 on)");
    socket ??= socketWay(transport);
    return eitherWay(socket, stream, over === "websocket");
  };
  return {
    subscribe(pattern, options = {}, onDelivery) {
      requireKnown("subscribe", options, known);
      return openSubscription({ way: wayOf(options.over ?? "auto"), pattern }, options, onDelivery);
    },
  };
}
