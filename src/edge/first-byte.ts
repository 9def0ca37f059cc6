import { gunzipSync } from "node:zlib";
import type { UniversalServerResponse } from "@connectrpc/connect/protocol";

/**
 * Bun sends the head of an answer with the first byte of its body, so a stream without a message yet would
 * look like a connection that hangs. The first byte of a message is known before it: the flags of its frame.
 */
const plainMessage = 0;
const packedMessage = 1;
const headBytes = 5;

/** A message that says nothing, without its first byte: what follows where no message followed that byte. */
const emptyRest = (contentType: string): Uint8Array =>
  contentType.includes("json")
    ? Uint8Array.of(0, 0, 0, 2, 0x7b, 0x7d) // {}
    : new Uint8Array(headBytes - 1);

function unpacked(frame: Uint8Array): Uint8Array {
  const message = gunzipSync(frame.subarray(headBytes));
  const plain = new Uint8Array(headBytes + message.length);
  new DataView(plain.buffer).setUint32(1, message.length);
  plain.set(message, headBytes);
  return plain;
}

const restOf = (frame: Uint8Array, contentType: string): Uint8Array[] => {
  if (frame[0] === plainMessage) return [frame.subarray(1)];
  if (frame[0] === packedMessage) return [unpacked(frame).subarray(1)];
  return [emptyRest(contentType), frame];
};

/** The first byte of the first message, at once, and what is left of the stream once there is an answer. */
export async function* afterFirstByte(
  answering: Promise<UniversalServerResponse>,
  header: Headers,
): AsyncGenerator<Uint8Array> {
  yield Uint8Array.of(plainMessage);
  let isFirst = true;
  for await (const frame of (await answering).body ?? []) {
    if (isFirst) yield* restOf(frame, header.get("content-type") ?? "");
    else yield frame;
    isFirst = false;
  }
}

/** A call that waits no longer than this needs no head before its answer. */
const shortDeadlineMs = 60_000;
const grpcUnitMs: Record<string, number> = {
  H: 3_600_000,
  M: 60_000,
  S: 1_000,
  m: 1,
  u: 0.001,
  n: 0.000_001,
};

/** Whether a stream's head is worth a message that may say nothing: not where the deadline is near anyway. */
export function wantsFirstByte(headers: Headers): boolean {
  const connect = headers.get("connect-timeout-ms");
  if (connect !== null) return Number(connect) > shortDeadlineMs;
  const [, digits, unit] = headers.get("grpc-timeout")?.match(/^(\d+)([HMSmun])$/) ?? [];
  return unit === undefined || Number(digits) * grpcUnitMs[unit]! > shortDeadlineMs;
}
