import type { Duration } from "../wire/duration.ts";

/** What a bucket is made with. */
export interface KvBucketOptions {
  description?: string;
  /** The time after which a value is gone: whole seconds. A put may say another. Without it values stay. */
  ttl?: Duration;
  /** @deprecated Write `ttl`. */
  ttlSeconds?: number;
  /** Of one value, in bytes. Default 1 MiB. */
  maxValueSize?: number;
  /** Of all newest values together. */
  maxBytes?: number;
  /** Values of one key that are kept, 1 to 64. Default 1. */
  history?: number;
}

export interface KvBucket extends Omit<KvBucketOptions, "ttl" | "ttlSeconds"> {
  name: string;
  ttlSeconds?: number;
  maxValueSize: number;
  history: number;
  /** How many keys have a value. */
  values: number;
  bytes: number;
  createdAt: string;
}

interface KvValue {
  key: string;
  value: Uint8Array;
  /** Number of the change in its bucket. */
  revision: number;
  /** The value as UTF-8. */
  text(): string;
  /** The value as JSON. */
  json<Value = unknown>(): Value;
}

export interface KvEntry extends KvValue {
  createdAt: string;
  expiresAt?: string;
}

/** A key got this value, or was deleted: then the value is empty. */
export interface KvChange extends KvValue {
  bucket: string;
  operation: "put" | "delete";
}

/** What must be true of a key or document before a change; else the call throws `precondition_failed`. */
export interface ChangeCondition {
  /** It does not exist. */
  ifAbsent?: boolean;
  /** It is at this revision. */
  ifRevision?: number;
}

export interface KvWatchOptions {
  /** A key or a pattern: dots cut keys, `*` is any text in a segment, a last `>` the rest. Default: all. */
  key?: string;
  /** Tells what changed after this revision, instead of the values that there are. */
  after?: number;
  /**
   * What a watch does that cannot tell all changes, as deletions are forgotten or the bucket was made anew:
   * `fail` (default) throws `failed_precondition`, `begin` tells all values again.
   */
  onGap?: "fail" | "begin";
  signal?: AbortSignal;
}

/** Keys and values. */
export interface KvCalls {
  /** Throws `already_exists` when there is one of that name. */
  createBucket(name: string, options?: KvBucketOptions): Promise<KvBucket>;
  buckets(): Promise<KvBucket[]>;
  /** Undefined when there is none. */
  bucket(name: string): Promise<KvBucket | undefined>;
  deleteBucket(name: string): Promise<void>;
  /** Undefined when there is no such key; with `revision` the value of then, while it is kept. */
  get(bucket: string, key: string, options?: { revision?: number }): Promise<KvEntry | undefined>;
  /** Bytes and texts as they are, anything else as JSON. Resolves with the revision once it is durable. */
  put(
    bucket: string,
    key: string,
    value: unknown,
    options?: ChangeCondition & Pick<KvBucketOptions, "ttl" | "ttlSeconds">,
  ): Promise<number>;
  /** A key that does not exist is deleted already. `purge` deletes the values before it, too. */
  delete(bucket: string, key: string, options?: ChangeCondition & { purge?: boolean }): Promise<void>;
  /** In the order of their bytes, page by page. */
  keys(bucket: string, options?: { filter?: string; prefix?: string }): AsyncIterable<string>;
  /**
   * The values that there are, then every change in the order of its revision, for as long as it is read. A
   * lost connection is opened again, after the last change.
   */
  watch(bucket: string, options?: KvWatchOptions): AsyncIterable<KvChange>;
}

export interface ConfigDocument<Data = Record<string, unknown>> {
  name: string;
  data: Data;
  /** Rises with each change of any document of the environment. */
  revision: number;
  updatedAt: string;
}

/** A document as it is now; `data` is null when it is deleted. */
export interface ConfigChange<Data = Record<string, unknown>> extends Omit<ConfigDocument<Data>, "data"> {
  data: Data | null;
}

export interface PastConfig {
  revision: number;
  operation: "put" | "delete";
  bytes: number;
  updatedAt: string;
}

/** Config documents: JSON objects by name. */
export interface ConfigCalls {
  list(): Promise<Omit<ConfigDocument, "data">[]>;
  /** Undefined when there is none; with `revision` as it was then, while that is kept. */
  get<Data = Record<string, unknown>>(
    name: string,
    options?: { revision?: number },
  ): Promise<ConfigDocument<Data> | undefined>;
  /** Sets the whole document; resolves with its revision. */
  put(name: string, data: object, options?: ChangeCondition): Promise<number>;
  /** Sets these fields of it. */
  patch(name: string, fields: object, options?: ChangeCondition): Promise<number>;
  delete(name: string, options?: ChangeCondition): Promise<void>;
  /** Newest first. */
  history(name: string): Promise<PastConfig[]>;
  /** Sets the document of a revision that is kept. */
  rollback(name: string, revision: number): Promise<number>;
  /** The document as it is, then each change, for as long as it is read. It need not exist yet. */
  watch<Data = Record<string, unknown>>(
    name: string,
    options?: { signal?: AbortSignal },
  ): AsyncIterable<ConfigChange<Data>>;
}
