import { follow } from "../subscriptions/watch.ts";
import { withUnits } from "../wire/duration.ts";
import { found } from "../wire/errors.ts";
import { jsonToSend } from "../wire/payload.ts";
import { count, type Message, query, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Request, Transport } from "../wire/transport.ts";
import type {
  ChangeCondition,
  KvBucket,
  KvBucketOptions,
  KvCalls,
  KvEntry,
  KvWatchOptions,
} from "./kv-types.ts";

const root = "/api/v1/kv/buckets";
const bucketPath = (bucket: string) => `${root}/${encodeURIComponent(bucket)}`;
const keyPath = (bucket: string, key: string) => `${bucketPath(bucket)}/keys/${encodeURIComponent(key)}`;

/** Headers of a condition. A conditional call that may have been done must not be done again. */
export function conditional({ ifAbsent, ifRevision }: ChangeCondition): {
  headers: Record<string, string>;
  options: { repeatable: boolean };
} {
  const headers = {
    ...(ifAbsent && { "if-none-match": "*" }),
    ...(ifRevision !== undefined && { "if-match": `"${ifRevision}"` }),
  };
  return { headers, options: Object.keys(headers).length > 0 ? once : safe };
}

/** The value of a message, which is base64. */
function readValue(message: Message) {
  const value = Uint8Array.from(atob(text(message.value)), (letter) => letter.charCodeAt(0));
  const asText = () => new TextDecoder().decode(value);
  return {
    key: text(message.key),
    value,
    revision: count(message.revision),
    text: asText,
    json: <Value>() => JSON.parse(asText()) as Value,
  };
}

const readEntry = (message: Message): KvEntry => ({
  ...readValue(message),
  createdAt: text(message.created_at),
  ...(message.expires_at !== undefined && { expiresAt: text(message.expires_at) }),
});

const readBucket = (message: Message): KvBucket => ({
  name: text(message.name),
  ...(message.description !== undefined && { description: text(message.description) }),
  ...(message.ttl_seconds !== undefined && { ttlSeconds: count(message.ttl_seconds) }),
  ...(message.max_bytes !== undefined && { maxBytes: count(message.max_bytes) }),
  maxValueSize: count(message.max_value_size),
  history: count(message.history),
  values: count(message.values),
  bytes: count(message.bytes),
  createdAt: text(message.created_at),
});

const ttlNames = { ttlSeconds: "ttl" } as const;

const sentBucket = (
  name: string,
  { description, ttlSeconds, maxValueSize, ...options }: KvBucketOptions,
) => ({
  ...{ name, description, ttl_seconds: ttlSeconds, max_value_size: maxValueSize },
  ...{ max_bytes: options.maxBytes, history: options.history },
});

/** Bytes and texts as they are, anything else as JSON. */
export function bodyOf(value: unknown): Pick<Request, "bytes" | "text"> {
  if (value instanceof Uint8Array) return { bytes: value };
  const written = typeof value === "string" ? value : jsonToSend(value, "value");
  if (written === undefined) throw new TypeError("value must be bytes, a text, or what JSON can hold");
  return { text: written };
}

export function kvCalls(transport: Transport): KvCalls {
  const read = (path: string) => transport.call<Message>({ method: "GET", path }, safe);
  return {
    async createBucket(name, options = {}) {
      const request = {
        method: "POST" as const,
        path: root,
        body: sentBucket(name, withUnits("createBucket", options, ttlNames)),
      };
      return readBucket(await transport.call<Message>(request, once));
    },
    buckets: async () => ((await read(root)).buckets as Message[]).map(readBucket),
    async bucket(name) {
      const message = await found(read(bucketPath(name)));
      return message && readBucket(message);
    },
    async deleteBucket(name) {
      await transport.call({ method: "DELETE", path: bucketPath(name) }, once);
    },

    async get(bucket, key, options = {}) {
      const message = await found(read(keyPath(bucket, key) + query({ revision: options.revision })));
      return message && readEntry(message);
    },
    async put(bucket, key, value, given = {}) {
      const { ttlSeconds, ...condition } = withUnits("put", given, ttlNames);
      const { headers, options } = conditional(condition);
      const path = keyPath(bucket, key) + query({ ttl_seconds: ttlSeconds });
      const type = { "content-type": "application/octet-stream", ...headers };
      const request = { method: "PUT" as const, path, headers: type, ...bodyOf(value) };
      return count((await transport.call<Message>(request, options)).revision);
    },
    async delete(bucket, key, { purge, ...condition } = {}) {
      const { headers, options } = conditional(condition);
      const path = keyPath(bucket, key) + (purge ? "?purge=true" : "");
      await transport.call({ method: "DELETE", path, headers }, options);
    },

    async *keys(bucket, { filter, prefix } = {}) {
      for (let cursor: string | undefined; ; ) {
        const page = await read(`${bucketPath(bucket)}/keys${query({ filter, prefix, cursor })}`);
        yield* page.keys as string[];
        if (page.next_cursor === undefined) return;
        cursor = text(page.next_cursor);
      }
    },
    watch: (bucket, options = {}) => watchKeys(transport, bucket, options),
  };
}

function watchKeys(
  transport: Transport,
  bucket: string,
  { key, after, onGap = "fail", signal }: KvWatchOptions,
) {
  let last = after;
  return follow(transport, {
    path: () => `${bucketPath(bucket)}/watch${query({ key, after: last })}`,
    read(frame) {
      if (frame.type !== "kv_update") return undefined;
      const value = readValue(frame);
      last = value.revision;
      return { ...value, bucket, operation: frame.operation === "delete" ? "delete" : "put" } as const;
    },
    ask: () => transport.call({ method: "GET", path: bucketPath(bucket) }, safe),
    mends(error) {
      const isGap = error.code === "failed_precondition" && onGap === "begin";
      if (isGap) last = undefined;
      return isGap;
    },
    signal,
  });
}
