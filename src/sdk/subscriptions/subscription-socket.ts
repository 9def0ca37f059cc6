import { SvcError } from "../wire/errors.ts";
import type { Transport } from "../wire/transport.ts";
import type { LineSubscription } from "./asked-patterns.ts";
import { SocketLine } from "./socket-line.ts";
import type { Way } from "./subscription-ways.ts";

/** On one socket; a few less than a server allows. */
const subscriptionsMax = 90;
/** Silence after which the client pings the server; a second one without an answer ends the socket. */
const silenceMsDefault = 20_000;

/** Subscriptions on WebSockets, many on one. One ends with code `not_opened` if its socket cannot open. */
export function socketWay(transport: Transport, silenceMs = silenceMsDefault): Way {
  const lines = new Set<SocketLine>();
  return (ask, to) => {
    for (const line of lines) if (line.isOver) lines.delete(line);
    let line = [...lines].find((one) => one.count < subscriptionsMax);
    if (!line) {
      line = new SocketLine(transport, silenceMs);
      lines.add(line);
    }
    const subscription: LineSubscription = { ask, to, isStopped: false };
    line.add(subscription);
    return () => line.stop(subscription);
  };
}

/**
 * Tries a socket, and where none can be opened, a stream. A browser does not say why a socket was refused;
 * the same request as a stream gets the reason, and passes proxies that let no socket through. With
 * `onlySocket` the stream serves for the reason alone.
 */
export const eitherWay = (socket: Way, stream: Way, onlySocket: boolean): Way => {
  return (ask, to) => {
    let stop = socket(ask, {
      ...to,
      ended(error) {
        if (error?.code !== "not_opened") return to.ended(error);
        if (!onlySocket) stop = stream(ask, to);
        else {
          const unopened = new SvcError("unreachable", error.message, { retryable: true });
          const end = (why = unopened) => {
            stop();
            to.ended(why);
          };
          stop = stream(ask, { started: () => end(), arrived() {}, passed() {}, ended: end });
        }
      },
    });
    return () => stop();
  };
};
