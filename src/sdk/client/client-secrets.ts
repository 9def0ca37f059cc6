import { type Message, readSecret } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Request, Transport } from "../wire/transport.ts";
import type { SecretCalls } from "./client-types.ts";

export function secretCalls(transport: Transport): SecretCalls {
  const root = "/api/v1/secrets";
  const pathOf = (name: string) => `${root}/${encodeURIComponent(name)}`;
  const send = async (method: Request["method"], path: string, body: unknown, options = safe) =>
    readSecret(await transport.call<Message>({ method, path, ...(body !== undefined && { body }) }, options));

  return {
    async list() {
      return (await transport.call<Message[]>({ method: "GET", path: root }, safe)).map(readSecret);
    },
    get: (name) => send("GET", pathOf(name), undefined),
    create: (name, value, { description } = {}) =>
      send("POST", root, { name, value, ...(description !== undefined && { description }) }, once),
    set: (name, value, { description } = {}) =>
      send("PUT", pathOf(name), { value, ...(description !== undefined && { description }) }),
    update: (name, change) => send("PATCH", pathOf(name), change, once),
    async delete(name) {
      await transport.call({ method: "DELETE", path: pathOf(name) }, once);
    },
  };
}
