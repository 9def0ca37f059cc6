import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import type { Instant } from "./clock.ts";

export function timestampOf(at: Instant): MessageInitShape<typeof TimestampSchema> {
  const seconds = Math.floor(at / 1000);
  return { seconds: BigInt(seconds), nanos: (at - seconds * 1000) * 1_000_000 };
}

export const instantOf = (timestamp: Timestamp): Instant =>
  Number(timestamp.seconds) * 1000 + Math.floor(timestamp.nanos / 1_000_000);

/** Integers come as JSON numbers or as decimal strings (the protobuf mapping); other values are left for the schema to refuse. */
export function withNumbers(
  body: Record<string, unknown>,
  fields: readonly string[],
): Record<string, unknown> {
  const read = { ...body };
  for (const field of fields) {
    const value = read[field];
    if (typeof value === "string" && /^-?\d{1,15}$/.test(value)) read[field] = Number(value);
    if (value === null) delete read[field];
  }
  return read;
}

/** A 64-bit count of a message. Beyond what a number holds exactly it is the farthest, which nothing ever reaches. */
export const safeCount = (value: bigint): number =>
  Number(value > Number.MAX_SAFE_INTEGER ? Number.MAX_SAFE_INTEGER : value);
