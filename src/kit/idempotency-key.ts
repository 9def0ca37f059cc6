import { Fault, invalid } from "./fault.ts";
import { idempotencyKeyBytesMax } from "./limits.ts";

/**
 * Of body and header, which must not differ. What is stored is in an index, whose rows are bounded in bytes.
 */
export function keyOf(bodyKey: string | undefined, headerKey: string | undefined, at = ""): string | null {
  const field = `${at}idempotencyKey`;
  if (bodyKey && headerKey && bodyKey !== headerKey)
    throw invalid(field, "differs from the header Idempotency-Key");
  if (bodyKey) return legalKey(field, bodyKey);
  return headerKey ? legalKey("Idempotency-Key", headerKey) : null;
}

function legalKey(field: string, key: string): string {
  if (Buffer.byteLength(key) > idempotencyKeyBytesMax)
    throw invalid(field, `at most ${idempotencyKeyBytesMax} bytes`);
  if (/\p{Cc}/u.test(key) || !key.isWellFormed()) throw invalid(field, "must not contain control characters");
  return key;
}

/**
 * Stands before keys that the server makes, of slots and of steps, where they are stored. No caller can send
 * it (see `keyOf`), so none can take such a key. Events show their keys without it.
 */
export const ownKeyMark = "\u0001";

/** Begins the server's keys of webhooks. */
export const webhookKeyStart = "webhook:";

/** A key as it is stored. */
export const storedKey = ({
  idempotencyKey,
  ownKey,
}: {
  idempotencyKey: string | null;
  ownKey?: true | undefined;
}): string | null => (ownKey && idempotencyKey !== null ? ownKeyMark + idempotencyKey : idempotencyKey);

/**
 * One key means one fact: it cannot name an emit and an invoke, or two functions. `at` is the
 * place in a batch: `events[3].`.
 */
export const keyReused = (key: string, at = ""): Fault =>
  new Fault(
    "already_exists",
    `${at === "" ? "" : `${at.slice(0, -1)}: `}idempotency key "${key.slice(0, 80)}" was used for another operation`,
    { field: `${at}idempotencyKey` },
  );
