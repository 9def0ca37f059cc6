import type { Operation, WatchOperation } from "../kit/operation.ts";
import { type Edge, faultOf } from "./call.ts";
import { closes, type SocketConnection } from "./open-socket.ts";
import { admit, performStream, prepare } from "./perform.ts";
import { defaultDecode, parseRoute, queryOf } from "./rest.ts";
import type { SocketDoor } from "./socket-door.ts";

/** Of RFC 6455, in a frame of 125 bytes. */
const closeReasonBytesMax = 120;

const reasonOf = (message: string): string =>
  Buffer.byteLength(message) <= closeReasonBytesMax ? message : "";

/** A read of the store, or a wait for one: what a client has not read yet is not read for it. */
async function pump(
  frames: AsyncIterator<string>,
  first: Awaited<ReturnType<typeof frames.next>>,
  connection: SocketConnection,
) {
  for (let next = first; !next.done; next = await frames.next()) {
    const room = connection.send(next.value);
    if (room) await room;
  }
}

/** The path of an operation to which a caller only listens. */
export function watchDoor(edge: Edge, operation: Operation & WatchOperation): SocketDoor {
  const prepared = prepare(operation);
  const decode = defaultDecode(operation.input);
  return {
    operation,
    path: parseRoute(operation.route).path,
    admit: (credentials, requestId) => admit(edge, prepared, credentials, requestId),

    async begin({ call, request, params }) {
      const over = new AbortController();
      call.endWith(over.signal);
      const admitted = Promise.withResolvers<void>();
      call.admitted = admitted.resolve;
      const asked = { params, query: queryOf(request.url), headers: request.headers, body: undefined };
      const frames = performStream(edge, prepared, call, () => decode(asked)) as AsyncGenerator<string>;
      const first = frames.next();
      await Promise.race([admitted.promise, first]);
      const leave = () => over.abort();
      return {
        leave() {
          leave();
          void first.then(() => frames.return(undefined)).catch(() => {});
        },
        connect(connection) {
          first
            .then((one) => pump(frames, one, connection))
            .then(
              () => connection.end(closes.gone, "the server has nothing more to say"),
              (error) => {
                const { message, kind: code } = faultOf(edge, error, operation, call.requestId);
                connection.send(JSON.stringify({ type: "error", message, code }));
                connection.end(closes.refused, reasonOf(message));
              },
            );
          return { onMessage() {}, subscriptions: () => [], deny() {}, onClose: leave };
        },
        watchAuthorization: () => undefined,
      };
    },
  };
}
