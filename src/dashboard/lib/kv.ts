import type { Static } from "@sinclair/typebox";
import type { BucketShape, ValueShape } from "../../domain/state/kv/operations.ts";
import type { RevisionsShape } from "../../domain/state/kv/revisions-operation.ts";
import { rest } from "./api.ts";
import { queryOf } from "./router.ts";

/** A bucket, as `GET /api/v1/kv/buckets/{bucket}` says. */
export type BucketData = Static<typeof BucketShape>;

export type ValueData = Static<typeof ValueShape>;

const bucketsPath = "/api/v1/kv/buckets";
const pathOf = (bucket: string) => `${bucketsPath}/${encodeURIComponent(bucket)}`;
/** Slashes of a key stay what they are. */
const keyPath = (bucket: string, key: string) =>
  `${pathOf(bucket)}/keys/${key.split("/").map(encodeURIComponent).join("/")}`;

export const listBuckets = async (signal?: AbortSignal): Promise<BucketData[]> =>
  (await rest<{ buckets: BucketData[] }>(bucketsPath, { signal })).buckets;

export const getBucket = (bucket: string, signal?: AbortSignal): Promise<BucketData> =>
  rest(pathOf(bucket), { signal });

export const createBucket = (body: object): Promise<BucketData> => rest(bucketsPath, { body });

export const deleteBucket = (bucket: string): Promise<void> => rest(pathOf(bucket), { method: "DELETE" });

export async function listKeys(
  bucket: string,
  asked: { prefix: string; cursor: string; limit: string },
  signal?: AbortSignal,
): Promise<{ rows: string[]; next: string | undefined }> {
  const path = `${pathOf(bucket)}/keys${queryOf(asked)}`;
  const page = await rest<{ keys: string[]; next_cursor?: string }>(path, { signal });
  return { rows: page.keys, next: page.next_cursor };
}

export const getKey = (
  bucket: string,
  key: string,
  revision: string,
  signal?: AbortSignal,
): Promise<ValueData> => rest(`${keyPath(bucket, key)}${queryOf({ revision })}`, { signal });

/** A revision that is kept, without its value. */
export type RevisionData = Static<typeof RevisionsShape>["revisions"][number];

export const listRevisions = async (
  bucket: string,
  key: string,
  signal?: AbortSignal,
): Promise<RevisionData[]> => {
  const path = `${pathOf(bucket)}/revisions/${key.split("/").map(encodeURIComponent).join("/")}`;
  return (await rest<{ revisions: RevisionData[] }>(path, { signal })).revisions;
};

/** What must be true of the key as it is: its revision, or 0 for a key that is not there. */
const onlyAt = (revision: number | undefined): Record<string, string> | undefined => {
  if (revision === undefined) return undefined;
  return revision === 0 ? { "If-None-Match": "*" } : { "If-Match": `${revision}` };
};

export const putKey = (
  bucket: string,
  key: string,
  put: { text: string; ttlSeconds: string; onlyAt: number | undefined },
): Promise<{ revision: number }> =>
  rest(`${keyPath(bucket, key)}${queryOf({ ttl_seconds: put.ttlSeconds })}`, {
    method: "PUT",
    bytes: new TextEncoder().encode(put.text),
    headers: { "Content-Type": "application/octet-stream", ...onlyAt(put.onlyAt) },
  });

export const deleteKey = (
  bucket: string,
  key: string,
  asked: { purge: boolean; onlyAt: number },
): Promise<void> =>
  rest(`${keyPath(bucket, key)}${queryOf({ purge: asked.purge ? "true" : "" })}`, {
    method: "DELETE",
    headers: onlyAt(asked.onlyAt),
  });

/** A value as people read it: text where its bytes are text. */
export function readValue(base64: string): { text: string | undefined; bytes: Uint8Array } {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), bytes };
  } catch {
    return { text: undefined, bytes };
  }
}

/** A change, as the watch of a bucket tells it. */
export interface ToldValue {
  type: "kv_update";
  key: string;
  value: string;
  revision: number;
  operation: "put" | "delete";
}

/** What a page remembers of it. */
export type SeenChange = Pick<ToldValue, "key" | "revision" | "operation">;

export const watchPath = (bucket: string, asked: { key?: string; after?: string }): string =>
  `${pathOf(bucket)}/watch${queryOf(asked)}`;
