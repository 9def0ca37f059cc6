import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { DescService } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from "@connectrpc/connect-node";
import { requestIdOf } from "./headers.ts";
import type { Surface } from "./rest.ts";
import {
  bodiless,
  countedBytes,
  type RpcImplementation,
  universalHandlers,
  type Visit,
  visitValues,
} from "./rpc-connect.ts";

/** Answers one method over gRPC. */
export type GrpcHandle = (
  request: Http2ServerRequest,
  response: Http2ServerResponse,
  hold: () => void,
) => Promise<void>;

/** What calls that are cut at a shutdown end with. */
export const shuttingDown = () => new ConnectError("the server is shutting down", Code.Unavailable);

/** Sends the head of an accepted stream, which may have nothing else to send for long. */
function sendHead(response: Http2ServerResponse, head: Headers, requestId: string): void {
  if (response.headersSent || response.stream?.destroyed) return;
  response.writeHead(200, { ...Object.fromEntries(head), "x-request-id": requestId });
  // Connect writes the same head with the first message.
  response.writeHead = () => response;
}

/** A handle for every method of the services, by its path. */
export function grpcHandles(
  surface: Surface,
  services: readonly DescService[],
  bound: ReadonlyMap<string, RpcImplementation>,
  shutdown: AbortSignal,
): ReadonlyMap<string, GrpcHandle> {
  const handlers = universalHandlers(surface, services, bound, {
    ...{ connect: false, grpcWeb: false, grpc: true, shutdown },
  });
  return new Map(
    handlers.map((handler) => {
      const prepared = bound.get(handler.requestPath)?.prepared;
      return [
        handler.requestPath,
        async (request, response, hold) => {
          const universal = universalRequestFromNodeRequest(request, response, undefined, undefined);
          const head = bodiless({ method: universal.method, url: universal.url, headers: universal.header });
          const requestId = requestIdOf(head, surface.edge.ids);
          const visit: Visit = { request: head, requestId, prepared };
          // Anyone may call what needs no action: its callers are strangers too.
          if (prepared?.operation.action !== null) visit.hold = hold;
          universal.contextValues = visitValues(visit);
          universal.body = countedBytes(visit, surface, universal.body as AsyncIterable<Uint8Array>);
          visit.opened = (how) => {
            if ("head" in how) sendHead(response, how.head, requestId);
          };
          const answered = await handler(universal);
          const header = new Headers(answered.header);
          header.set("x-request-id", requestId);
          const body = answered.body && untaken(visit, surface, answered.body);
          await universalResponseToNodeResponse({ ...answered, header, ...(body && { body }) }, response);
        },
      ];
    }),
  );
}

/** The next message is asked for when its client has taken this one. */
async function* untaken(
  { call }: Visit,
  surface: Surface,
  messages: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const unsent = surface.unsent.reading(call?.caller.id ?? "");
  try {
    for await (const message of messages) {
      unsent.take(message.byteLength);
      yield message;
      unsent.release();
    }
  } finally {
    unsent.release();
  }
}
