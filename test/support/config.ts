import { configFrames } from "../../src/domain/state/config/operations.ts";
import type { CallOptions, TestServer } from "./server.ts";
import { openSocket, type TestSocket } from "./sockets.ts";

export const configBase = "/api/v1/config";

/** Config documents of a server, as callers have them. */
export function configOf(server: () => TestServer) {
  const send =
    (method: string) =>
    (path: string, body: unknown, options: CallOptions = {}) =>
      server().api(`${configBase}/${path}`, { method, body, ...options });
  const watch = (name: string, key = server().adminKey): Promise<TestSocket> =>
    openSocket(server().url, {
      at: { path: `${configBase}/${name}/watch`, frames: configFrames },
      headers: { authorization: `Bearer ${key}` },
    });
  return {
    put: send("POST"),
    patch: send("PATCH"),
    get: (path: string, options: CallOptions = {}) => server().api(`${configBase}${path}`, options),
    remove: (name: string, options: CallOptions = {}) =>
      server().api(`${configBase}/${name}`, { method: "DELETE", ...options }),
    watch,
  };
}
