import type { Instant } from "../../../kit/clock.ts";
import type { ItemOutcome } from "../../../kit/combine.ts";
import type { Expected } from "../../../kit/expected.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { markerKeptMs } from "./limits.ts";
import type { Bucket } from "./rows.ts";
import { unexpected } from "./rules.ts";

/** A bucket while changes hold it. */
export type HeldBucket = Omit<Bucket, "description" | "createdAt">;

/** The newest of a key; its value only where a change is made from it. */
export interface KeyState {
  environmentId: string;
  bucketId: string;
  key: string;
  revision: number;
  operation: "put" | "delete";
  bytes: number;
  createdAt: Instant;
  expiresAt: Instant | null;
  value?: string | null;
}

/** With its value in base64; null in a marker. */
export interface WrittenKey extends Omit<KeyState, "value"> {
  value: string | null;
}

/** What is put, in base64 and as it is counted. */
export interface PutValue {
  value: string;
  bytes: number;
}

/** What one caller wants of one key. */
export interface ValueChange {
  environmentId: string;
  bucket: string;
  key: string;
  expected: Expected;
  /** Undefined deletes the key. With `from` it is made from the current value, which may throw a fault. */
  put?: (PutValue | { from: (current: string | undefined) => PutValue }) & { ttlMs?: number | undefined };
  /** What a refusal calls the key. */
  called?: string;
  /** A deletion takes the values before it, too. */
  dropsHistory?: boolean;
}

/** What the key is now; undefined when there was nothing to delete. */
export type Changed = WrittenKey | undefined;

/** Where a key stands. */
export interface KeyAddress {
  environmentId: string;
  bucketId: string;
  key: string;
}

export const addressOf = ({ environmentId, bucketId, key }: KeyAddress): string =>
  `${environmentId}\n${bucketId}\n${key}`;
const nameOf = (environmentId: string, name: string) => `${environmentId}\n${name}`;

const isAlive = (
  { operation, expiresAt }: Pick<KeyState, "operation" | "expiresAt">,
  now: Instant,
): boolean => operation === "put" && (expiresAt === null || expiresAt > now);

/** Decides changes one by one, each on the result of those before, and gathers what is to be written. */
export class ValueChanges {
  readonly #now: Instant;
  readonly #buckets: ReadonlyMap<string, HeldBucket>;
  readonly #bytesBefore: ReadonlyMap<HeldBucket, number>;
  readonly #stored: ReadonlyMap<string, KeyState>;
  readonly #written = new Map<string, WrittenKey>();
  /** Stored values that go to the history as they are. */
  readonly replaced = new Map<string, KeyState>();
  /** Values that were put and replaced within these changes. */
  #passed: WrittenKey[] = [];
  /** Keys whose history goes, before anything is written. */
  readonly dropped = new Map<string, KeyAddress>();
  readonly changed = new Set<HeldBucket>();
  /** Buckets that had no room for a value. */
  readonly full = new Set<HeldBucket>();

  constructor(now: Instant, buckets: readonly HeldBucket[], stored: readonly KeyState[]) {
    this.#now = now;
    this.#buckets = new Map(buckets.map((bucket) => [nameOf(bucket.environmentId, bucket.name), bucket]));
    this.#bytesBefore = new Map(buckets.map((bucket) => [bucket, bucket.bytes]));
    this.#stored = new Map(stored.map((state) => [addressOf(state), state]));
  }

  /** Bytes that an environment stores more than before, what leaves the history apart. */
  grown(): Map<string, number> {
    const all = new Map<string, number>();
    const add = (id: string, bytes: number) => all.set(id, (all.get(id) ?? 0) + bytes);
    for (const bucket of this.changed)
      add(bucket.environmentId, bucket.bytes - this.#bytesBefore.get(bucket)!);
    for (const one of [...this.replaced.values(), ...this.#passed]) add(one.environmentId, one.bytes);
    return all;
  }

  get written(): WrittenKey[] {
    return [...this.#written.values()];
  }

  get passed(): readonly WrittenKey[] {
    return this.#passed;
  }

  /** Keys that may have more history now than their bucket keeps, with how many older values it keeps. */
  get lengthened(): (KeyAddress & { kept: number })[] {
    const kept = new Map([...this.changed].map(({ id, historyMax }) => [id, historyMax - 1]));
    return this.written
      .filter(({ bucketId }) => kept.get(bucketId)! > 0)
      .map((state) => ({ ...state, kept: kept.get(state.bucketId)! }));
  }

  apply(change: ValueChange): ItemOutcome<Changed> {
    const bucket = this.#buckets.get(nameOf(change.environmentId, change.bucket));
    if (!bucket) return { error: missing("bucket", change.bucket) };
    const address = { environmentId: change.environmentId, bucketId: bucket.id, key: change.key };
    const before = this.#written.get(addressOf(address)) ?? this.#stored.get(addressOf(address));
    const alive = before && isAlive(before, this.#now) ? before : undefined;
    const refused = unexpected(change.expected, `${change.called ?? "key"} ${change.key}`, alive?.revision);
    if (refused) return { error: refused };
    const put = this.#putOf(change, alive);
    if (put instanceof Fault) return { error: put };
    const fault = this.#refusalOf(bucket, put, before);
    if (fault) return { error: fault };
    if (change.dropsHistory) this.#dropHistory(address);
    if (!put && !alive) return { value: undefined };
    if (alive && !change.dropsHistory && bucket.historyMax > 1) this.#keep(alive);
    return { value: this.#write(bucket, address, put && { ...put, ttlMs: change.put?.ttlMs }, before) };
  }

  #putOf({ put }: ValueChange, alive: KeyState | undefined): PutValue | Fault | undefined {
    if (!put || !("from" in put)) return put;
    try {
      return put.from(alive?.value ?? undefined);
    } catch (error) {
      if (error instanceof Fault) return error;
      throw error;
    }
  }

  #refusalOf(bucket: HeldBucket, put: PutValue | undefined, before: KeyState | undefined): Fault | undefined {
    if (!put) return undefined;
    const { name, valueBytesMax, bytesMax } = bucket;
    const field = "value";
    if (put.bytes > valueBytesMax)
      return new Fault("payload_too_large", `value: at most ${valueBytesMax} bytes in bucket ${name}`, {
        field,
      });
    if (bytesMax === null || bucket.bytes - (before?.bytes ?? 0) + put.bytes <= bytesMax) return undefined;
    this.full.add(bucket);
    const rule = `bucket ${name} holds at most ${bytesMax} bytes, and has ${bucket.bytes}`;
    return new Fault("resource_exhausted", `value: ${rule}`, { field });
  }

  #keep(alive: KeyState): void {
    const address = addressOf(alive);
    const written = this.#written.get(address);
    if (written) this.#passed.push(written);
    else this.replaced.set(address, alive);
  }

  #dropHistory(address: KeyAddress): void {
    const text = addressOf(address);
    this.dropped.set(text, address);
    this.replaced.delete(text);
    this.#passed = this.#passed.filter((state) => addressOf(state) !== text);
  }

  #write(
    bucket: HeldBucket,
    address: KeyAddress,
    put: (PutValue & { ttlMs: number | undefined }) | undefined,
    before: KeyState | undefined,
  ): WrittenKey {
    const now = this.#now;
    const ttlMs = put ? (put.ttlMs ?? bucket.ttlMs) : markerKeptMs;
    const state: WrittenKey = {
      ...address,
      revision: bucket.revision + 1,
      operation: put ? "put" : "delete",
      bytes: put?.bytes ?? 0,
      createdAt: now,
      expiresAt: ttlMs === null ? null : now + ttlMs,
      value: put?.value ?? null,
    };
    bucket.revision = state.revision;
    bucket.valueCount += (put ? 1 : 0) - (before?.operation === "put" ? 1 : 0);
    bucket.bytes += state.bytes - (before?.bytes ?? 0);
    this.changed.add(bucket);
    this.#written.set(addressOf(address), state);
    return state;
  }
}
