import type { BodyRead } from "./body-budget.ts";

/** An answer of no more is handed to its connection whole. */
export const wholeBytesMax = 16 * 1024;
const pieceBytes = 64 * 1024;

const encoder = new TextEncoder();

/**
 * An answer that its connection takes piece by piece: Bun would copy a whole one and keep it as long as the
 * client leaves it. What is not taken counts in the caller's budget; reads without room there are refused.
 */
export function sentInPieces(
  body: string | Uint8Array,
  init: ResponseInit,
  unsent: BodyRead,
  refusable = false,
): Response {
  if (body.length <= wholeBytesMax) return new Response(body as BodyInit, init);
  const bytes = typeof body === "string" ? encoder.encode(body) : body;
  if (refusable) unsent.acquire(bytes.length);
  else unsent.take(bytes.length);
  let at = 0;
  const pieces: UnderlyingDefaultSource<Uint8Array> = {
    pull(controller) {
      controller.enqueue(bytes.subarray(at, at + pieceBytes));
      at += pieceBytes;
      if (at < bytes.length) return;
      unsent.release();
      controller.close();
    },
    cancel: () => unsent.release(),
  };
  return new Response(new ReadableStream(pieces, { highWaterMark: 0 }), init);
}
