import { follow } from "../subscriptions/watch.ts";
import { found } from "../wire/errors.ts";
import { count, type Message, query, readSecret, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Request, Transport } from "../wire/transport.ts";
import { conditional } from "./client-kv.ts";
import type { SecretCalls } from "./client-types.ts";
import type { ConfigCalls, ConfigChange, ConfigDocument, PastConfig } from "./kv-types.ts";

const root = "/api/v1/config";
const pathOf = (name: string) => `${root}/${encodeURIComponent(name)}`;

const readRow = (message: Message) => ({
  name: text(message.name),
  revision: count(message.revision),
  updatedAt: text(message.updatedAt),
});

const readDocument = <Data>(message: Message): ConfigDocument<Data> => ({
  ...readRow(message),
  data: message.data as Data,
});

export function configCalls(transport: Transport): ConfigCalls {
  const read = (path: string) => transport.call<Message>({ method: "GET", path }, safe);
  const change = async (method: Request["method"], path: string, body?: object, condition = {}) => {
    const { headers, options } = conditional(condition);
    const request = { method, path, headers, ...(body && { body }) };
    return count((await transport.call<Message | undefined>(request, options))?.revision);
  };
  return {
    list: async () => ((await read(root)).configs as Message[]).map(readRow),
    async get<Data>(name: string, { revision }: { revision?: number } = {}) {
      const message = await found(read(pathOf(name) + query({ revision })));
      return message && readDocument<Data>(message);
    },
    put: (name, data, condition) => change("POST", pathOf(name), data, condition),
    patch: (name, fields, condition) => change("PATCH", pathOf(name), fields, condition),
    async delete(name, condition) {
      await change("DELETE", pathOf(name), undefined, condition);
    },
    history: async (name) => (await read(`${pathOf(name)}/history`)).history as PastConfig[],
    rollback: (name, revision) => change("POST", `${pathOf(name)}/rollback/${revision}`),
    watch<Data>(name: string, { signal }: { signal?: AbortSignal } = {}) {
      let last = 0;
      return follow<ConfigChange<Data>>(transport, {
        path: () => `${pathOf(name)}/watch`,
        read(frame) {
          const isNew = frame.type === "config_update" && count(frame.revision) !== last;
          if (!isNew) return undefined;
          last = count(frame.revision);
          return readDocument<Data | null>(frame);
        },
        // One that does not exist yet may be watched.
        ask: () => found(read(pathOf(name))),
        signal,
      });
    },
  };
}

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
