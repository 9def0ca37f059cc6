import { Type } from "@sinclair/typebox";
import { stated } from "../../../kit/cases.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { conditions, etagOf, expectedOf, expecting } from "../../../kit/expected.ts";
import {
  type Call,
  endOfWatch,
  listed,
  type Operation,
  type RestRequest,
  unary,
  watch,
} from "../../../kit/operation.ts";
import { bucketNameCharsMax, descriptionCharsMax, historyMax, keyBytesMax, ttlSecondsMax } from "./limits.ts";
import { revisionsOperation } from "./revisions-operation.ts";
import type { Bucket, Kv, StoredValue, ToldChange } from "./service.ts";

const bucketName = Type.String({ minLength: 1, maxLength: bucketNameCharsMax });
const inBucket = { bucket: bucketName };
// The service answers with the limit in bytes; this only keeps the document honest.
const ofKey = { bucket: bucketName, key: shape.text(`At most ${keyBytesMax} bytes.`) };
const maxLength = 2 * keyBytesMax;
const count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const seconds = { minimum: 0, maximum: ttlSecondsMax };
const bucketSeconds = Type.Integer({ ...seconds, description: "0: values stay until they are deleted." });
const valueSeconds = Type.Integer({ ...seconds, description: "0 or left out: as the bucket says." });

const purge = maybe.flag("Whether the values before it are deleted as well.");

export const BucketShape = Type.Object({
  name: shape.text("Name of the bucket."),
  description: maybe.text("What the bucket is for."),
  ttl_seconds: maybe.count("Seconds that a value is kept; absent: without end."),
  max_value_size: Type.Integer(),
  max_bytes: maybe.count("The most bytes that the bucket holds; absent: no limit."),
  history: shape.count("Values that are kept of each key, the newest included."),
  values: shape.count("Values that are kept, those of the history included."),
  bytes: shape.count("Bytes that the values take."),
  created_at: Type.String({ format: "date-time" }),
});

const bucketJson = (bucket: Bucket) => ({
  name: bucket.name,
  ...(bucket.description !== null && { description: bucket.description }),
  ...(bucket.ttlMs !== null && { ttl_seconds: bucket.ttlMs / 1_000 }),
  max_value_size: bucket.valueBytesMax,
  ...(bucket.bytesMax !== null && { max_bytes: bucket.bytesMax }),
  history: bucket.historyMax,
  values: bucket.valueCount,
  bytes: bucket.bytes,
  created_at: rfc3339(bucket.createdAt),
});

/** Of a policy, a key is `{bucket}/{key}`; what is said of its bucket holds for it too. */
const keyName = (bucket: string, key: string) => `${bucket}/${key}`;
const aboutKey = ({ bucket, key }: { bucket: string; key: string }) => [
  keyName(bucket, key),
  { type: "kv", id: bucket },
];

const integerOf = (given: string) => (/^-?\d{1,15}$/.test(given) ? Number(given) : given);
const booleanOf = (given: string) => (given === "true" ? true : given === "false" ? false : given);

function queried(
  { query }: RestRequest,
  name: string,
  read: (given: string) => unknown,
): Record<string, unknown> {
  const given = query.get(name);
  return given === null ? {} : { [name]: read(given) };
}

const readSecrets = { action: "secrets:read", reads: true } as const;

const bucketOperations = (kv: Kv): Operation[] => [
  unary({
    name: "kv.buckets.create",
    action: "secrets:manage",
    summary: "A bucket for keys and their values.",
    input: Type.Object({
      name: Type.String({
        maxLength: 4 * bucketNameCharsMax,
        description: "Name of the bucket: A-Z, a-z, 0-9, `_` and `-`, at most 64.",
      }),
      description: Type.Optional(
        Type.String({
          maxLength: descriptionCharsMax,
          description: `What the bucket is for, at most ${descriptionCharsMax} characters.`,
        }),
      ),
      ttl_seconds: Type.Optional(bucketSeconds),
      max_value_size: Type.Optional(count),
      max_bytes: Type.Optional(described(count, "The most bytes that the bucket holds; 0 for no limit.")),
      history: Type.Optional(
        Type.Integer({
          minimum: 0,
          maximum: historyMax,
          description: "Values that are kept of each key, the newest included: 1 to 64.",
        }),
      ),
    }),
    output: BucketShape,
    rest: { route: "POST /api/v1/kv/buckets", status: 201 },
    handle: async ({ name, description, ttl_seconds, max_value_size, max_bytes, history }, call) =>
      bucketJson(
        await kv.createBucket(call.environmentId, {
          name,
          ...stated({ description, ttlSeconds: ttl_seconds, valueBytesMax: max_value_size }),
          ...stated({ bytesMax: max_bytes, historyMax: history }),
        }),
      ),
  }),
  unary({
    name: "kv.buckets.list",
    ...readSecrets,
    summary: "Buckets of the environment, by name.",
    input: Type.Object({}),
    output: Type.Object({
      buckets: Type.Array(BucketShape, { description: "Buckets by name." }),
      count: shape.count("How many buckets are listed."),
    }),
    rest: "GET /api/v1/kv/buckets",
    lists: listed(({ name }: { name: string }) => [name], { under: "buckets" }),
    async handle(_input, call) {
      const buckets = (await kv.buckets(call.environmentId)).map(bucketJson);
      return { buckets, count: buckets.length };
    },
  }),
  unary({
    name: "kv.buckets.get",
    ...readSecrets,
    summary: "One bucket, with how many values it has and how many bytes they take.",
    input: Type.Object(inBucket),
    output: BucketShape,
    rest: "GET /api/v1/kv/buckets/{bucket}",
    handle: async ({ bucket }, call) => bucketJson(await kv.bucket(call.environmentId, bucket)),
  }),
  unary({
    name: "kv.buckets.delete",
    action: "secrets:manage",
    summary: "Deletes a bucket with all that is in it.",
    input: Type.Object(inBucket),
    rest: "DELETE /api/v1/kv/buckets/{bucket}",
    handle: ({ bucket }, call) => kv.deleteBucket(call.environmentId, bucket),
  }),
];

interface KeysAnswer {
  keys: { bucket: string; key: string }[];
  count: number;
  next_cursor?: string;
}

const keysOperation = (kv: Kv): Operation =>
  unary({
    name: "kv.keys.list",
    ...readSecrets,
    summary: "Keys of a bucket, in order; `next_cursor` stands where there may be more.",
    input: Type.Object({
      ...inBucket,
      filter: Type.Optional(
        Type.String({
          maxLength,
          description:
            "Dots cut keys into segments: `*` is any text inside one, a last `>` one segment or more.",
        }),
      ),
      prefix: Type.Optional(Type.String({ maxLength, description: "What keys begin with." })),
      limit: maybe.count("How many at most, never more than 10,000."),
      cursor: Type.Optional(Type.String({ maxLength })),
    }),
    output: Type.Object({
      keys: Type.Array(Type.String(), { description: "Keys of the page, in order." }),
      count: shape.count("How many keys the page has."),
      next_cursor: Type.Optional(Type.String()),
    }),
    rest: {
      route: "GET /api/v1/kv/buckets/{bucket}/keys",
      json: ({ keys, ...rest }: KeysAnswer) => ({ keys: keys.map(({ key }) => key), ...rest }),
    },
    lists: listed(({ bucket, key }: { bucket: string; key: string }) => [bucket, keyName(bucket, key)], {
      under: "keys",
    }),
    async handle({ bucket, ...query }, call): Promise<KeysAnswer> {
      const { keys, nextCursor } = await kv.keys(call.environmentId, bucket, query);
      return {
        keys: keys.map((key) => ({ bucket, key })),
        count: keys.length,
        ...(nextCursor !== undefined && { next_cursor: nextCursor }),
      };
    },
  });

const textOf = (key: string, { value, revision, created_at, expires_at }: StoredValue): string =>
  JSON.stringify({
    key,
    value,
    revision,
    created_at: rfc3339(created_at),
    ...(expires_at !== null && { expires_at: rfc3339(expires_at) }),
    operation: "put",
  });

export const ValueShape = Type.Object({
  key: shape.text("The key in its bucket."),
  value: shape.text("Base64."),
  revision: Type.Integer(),
  created_at: Type.String({ format: "date-time" }),
  expires_at: Type.Optional(Type.String({ format: "date-time" })),
  operation: Type.Literal("put", { description: "Always `put`: a deleted key is not found." }),
});

const valueOperations = (kv: Kv): Operation[] => [
  unary({
    name: "kv.get",
    ...readSecrets,
    summary: "The value of a key in base64: the newest, or that of a revision which is still kept.",
    input: Type.Object({ ...ofKey, revision: Type.Optional(count) }),
    about: aboutKey,
    output: ValueShape,
    rest: {
      route: "GET /api/v1/kv/buckets/{bucket}/keys/{key...}",
      encode(found: StoredValue, { key }) {
        found.text ??= textOf(key, found);
        return { status: 200, headers: etagOf(found.revision), text: found.text };
      },
    },
    handle: ({ bucket, key, revision }, call) => kv.get(call.environmentId, bucket, key, revision),
  }),
  unary({
    name: "kv.put",
    isRoutine: true,
    action: "secrets:manage",
    summary:
      "Sets a key to the body, as it is. `If-None-Match: *` only where there is no such key, `If-Match: {revision}` only at that revision; 412 says the revision that was found.",
    input: Type.Object({
      ...ofKey,
      value: Type.Uint8Array(),
      ttl_seconds: Type.Optional(valueSeconds),
      ...expecting,
    }),
    about: aboutKey,
    output: Type.Object({ revision: Type.Integer() }),
    rest: {
      route: "PUT /api/v1/kv/buckets/{bucket}/keys/{key...}",
      raw: true,
      query: Type.Object({ ttl_seconds: Type.Optional(valueSeconds) }),
      decode: (request) => ({
        ...conditions(request),
        ...queried(request, "ttl_seconds", integerOf),
        ...request.params,
        value: request.body ?? new Uint8Array(),
      }),
      encode: (revision: number) => ({ status: 200, headers: etagOf(revision), body: { revision } }),
    },
    handle: ({ bucket, key, value, ttl_seconds, if_match, if_none_match }, call) =>
      kv.put(call.environmentId, bucket, key, {
        value,
        expected: expectedOf(if_match, if_none_match),
        ...(ttl_seconds !== undefined && { ttlSeconds: ttl_seconds }),
      }),
  }),
  unary({
    name: "kv.delete",
    isRoutine: true,
    action: "secrets:manage",
    summary: "Deletes a key; with `purge=true` also the values before it. `If-Match` as in a PUT.",
    input: Type.Object({
      ...ofKey,
      purge,
      ...expecting,
    }),
    about: aboutKey,
    rest: {
      route: "DELETE /api/v1/kv/buckets/{bucket}/keys/{key...}",
      query: Type.Object({ purge }),
      decode: (request) => ({
        ...conditions(request),
        ...queried(request, "purge", booleanOf),
        ...request.params,
      }),
    },
    handle: ({ bucket, key, purge = false, if_match, if_none_match }, call) =>
      kv.remove(call.environmentId, bucket, key, {
        expected: expectedOf(if_match, if_none_match),
        dropsHistory: purge,
      }),
  }),
];

const Told = Type.Object({
  key: shape.text("The key in its bucket."),
  value: shape.text("Base64; empty of a deletion."),
  revision: Type.Integer(),
  operation: Type.Union([Type.Literal("put"), Type.Literal("delete")], {
    description: "What was done to the key.",
  }),
  bucket: Type.String(),
});

export const watchFrames = {
  kv_update: { about: "A key has this value, or is deleted.", schema: Told },
  error: { about: "Why the socket is closed.", schema: endOfWatch },
};

/** Written once for all who are told of the change. */
const toldTexts = new WeakMap<ToldChange, string>();

function toldText(change: ToldChange, bucket: string): string {
  const { key, value, revision, operation } = change;
  const known = toldTexts.get(change);
  if (known !== undefined) return known;
  const text = JSON.stringify({ type: "kv_update", key, value, revision, operation, bucket });
  toldTexts.set(change, text);
  return text;
}

/** Whether deny policies let the caller of an open watch read a key, as they are now. */
async function screening(call: Call): Promise<(names: readonly string[]) => Promise<boolean>> {
  const look = () => call.screen("secrets:read", "kv");
  let screen = await look();
  call.onRenewed(async () => {
    screen = await look();
  });
  return async (names) => (await screen?.refusalOf(names)) === undefined;
}

const watchOperation = (kv: Kv): Operation =>
  watch({
    name: "kv.watch",
    ...readSecrets,
    summary:
      "Changes of a bucket's keys as they happen, in the order of their revisions: first the values that there are, or with `after` what has changed since.",
    input: Type.Object({
      ...inBucket,
      key: Type.Optional(
        Type.String({ maxLength, description: "A key, or a pattern as `filter` of a list; all by default." }),
      ),
      after: Type.Optional(
        described(
          count,
          "The revision behind which it goes on; the values that there are come first when left out.",
        ),
      ),
    }),
    about: ({ bucket, key = "" }) => (/^$|[*>]/.test(key) ? [bucket] : aboutKey({ bucket, key })),
    route: "GET /api/v1/kv/buckets/{bucket}/watch",
    frames: watchFrames,
    async *handle({ bucket, key, after }, call) {
      const { signal, admitted = () => {} } = call;
      const mayRead = await screening(call);
      const ask = { key, after, signal, admitted };
      for await (const change of kv.watch(call.environmentId, bucket, ask))
        if (await mayRead([bucket, keyName(bucket, change.key)])) yield toldText(change, bucket);
    },
  });

export const kvOperations = (kv: Kv): Operation[] => [
  ...bucketOperations(kv),
  keysOperation(kv),
  ...valueOperations(kv),
  revisionsOperation(kv, { ofKey, aboutKey }),
  watchOperation(kv),
];
