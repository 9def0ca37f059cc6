import { tryAgain } from "../kit/fault.ts";

/** Memory for request bodies being read, or answers not taken yet: of a node, and of one key or user. */
export const bodiesBytesMax = 128 * 1024 * 1024;
export const bodiesOfCallerBytesMax = 64 * 1024 * 1024;
/** The same for all unauthenticated callers together. */
export const bodiesOfNobodyBytesMax = 8 * 1024 * 1024;
/** A caller holding no more than this is served even when the node's budget is used up. */
const littleBytes = 8 * 1024 * 1024;
/** Requests without a credential are small: an address and a password. */
export const publicBodyBytesMax = 16 * 1024;

/** The budget of one body that is being read, or sent. */
export interface BodyRead {
  /** Throws `resource_exhausted` when there is no room for this many bytes more. */
  acquire(bytes: number): void;
  /** The same without a refusal: of an answer to what has been done already. */
  take(bytes: number): void;
  release(): void;
}

export interface BodyBudget {
  /** `holder` is the key or user; empty for an unauthenticated caller. */
  reading(holder: string): BodyRead;
  /** Bytes held now. */
  bytes(): number;
}

/** `what` is what the refusal names. */
export function openBodyBudget(what = "request bodies"): BodyBudget {
  const full = () => tryAgain("resource_exhausted", `too many ${what} at once, try again`);
  const held = new Map<string, number>();
  let total = 0;

  function change(holder: string, bytes: number): void {
    if (bytes === 0) return;
    total += bytes;
    const left = (held.get(holder) ?? 0) + bytes;
    if (left > 0) held.set(holder, left);
    else held.delete(holder);
  }

  class OwnBodyRead implements BodyRead {
    readonly #holder: string;
    #mine = 0;

    constructor(holder: string) {
      this.#holder = holder;
    }

    acquire(bytes: number): void {
      const most = this.#holder === "" ? bodiesOfNobodyBytesMax : bodiesOfCallerBytesMax;
      const wanted = (held.get(this.#holder) ?? 0) + bytes;
      if (wanted > most || (total + bytes > bodiesBytesMax && wanted > littleBytes)) throw full();
      this.take(bytes);
    }

    take(bytes: number): void {
      this.#mine += bytes;
      change(this.#holder, bytes);
    }

    release(): void {
      change(this.#holder, -this.#mine);
      this.#mine = 0;
    }
  }

  return { bytes: () => total, reading: (holder) => new OwnBodyRead(holder) };
}

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
