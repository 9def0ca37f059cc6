import { SvcError } from "./errors.ts";

/** Messages of a stream in the Connect protocol: a byte of flags, four of length, JSON. */
const headBytes = 5;
const lastEnvelope = 0b10;

const statusOfCode: Record<string, number> = {
  unauthenticated: 401,
  permission_denied: 403,
  failed_precondition: 400,
  invalid_argument: 400,
  not_found: 404,
  unimplemented: 501,
  unavailable: 503,
  resource_exhausted: 429,
};

export function envelope(text: string): Uint8Array<ArrayBuffer> {
  const body = new TextEncoder().encode(text);
  const bytes = new Uint8Array(headBytes + body.length);
  new DataView(bytes.buffer).setUint32(1, body.length);
  bytes.set(body, headBytes);
  return bytes;
}

/** The SvcError for a code of the Connect protocol, or for the server's own reason (`position_expired`). */
export function errorOfCode(code: string, message: string, reason?: string): SvcError {
  const status = statusOfCode[code] ?? 500;
  return new SvcError(reason ?? code, message, { status, retryable: status >= 429 && status !== 501 });
}

function endOf(text: string): SvcError | undefined {
  const { error, metadata } = JSON.parse(text) as {
    error?: { code?: string; message?: string };
    metadata?: Record<string, string[]>;
  };
  if (!error) return undefined;
  const code = error.code ?? "unknown";
  // A reason in capitals (`INVALID_PATTERN`) says more than the code; one in small letters stands for it.
  const reason = metadata?.["svc-error-reason"]?.find((word) => /^[a-z]/.test(word));
  return errorOfCode(code, error.message ?? code, reason);
}

/** `onEnd` is called for the envelope that ends a stream; nothing is read behind it. */
export function readEnvelopes(
  onMessage: (message: Record<string, unknown>) => void,
  onEnd: (error: SvcError | undefined) => void,
) {
  const decoder = new TextDecoder();
  let unread = new Uint8Array(0);
  let over = false;
  return {
    /** Takes bytes as they arrive, and calls back for each complete message. Throws on what is no message. */
    take(bytes: Uint8Array) {
      let all: Uint8Array = bytes;
      if (unread.length > 0) {
        all = new Uint8Array(unread.length + bytes.length);
        all.set(unread);
        all.set(bytes, unread.length);
      }
      let at = 0;
      while (!over && all.length - at >= headBytes) {
        const length = new DataView(all.buffer, all.byteOffset + at).getUint32(1);
        if (all.length - at < headBytes + length) break;
        const text = decoder.decode(all.subarray(at + headBytes, at + headBytes + length));
        const flags = all[at]!;
        at += headBytes + length;
        if (flags & lastEnvelope) {
          over = true;
          onEnd(endOf(text));
        } else onMessage(JSON.parse(text) as Record<string, unknown>);
      }
      unread = all.slice(at);
    },
  };
}
