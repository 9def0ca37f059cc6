/** How far clocks of server and endpoint may differ, and how long a captured request could be reused. */
export const signatureSkewSecondsMax = 300;

export type Verdict = "valid" | "missing" | "invalid";

interface SignatureParts {
  t?: string;
  v1?: string;
  sha256?: string;
}

const encoder = new TextEncoder();

function partsOf(header: string): SignatureParts {
  const parts: SignatureParts = {};
  for (const part of header.split(",")) {
    const [, name, value] = /^\s*(t|v1|sha256)=([0-9a-fA-F]+)\s*$/.exec(part) ?? [];
    if (name !== undefined && value !== undefined) parts[name as keyof SignatureParts] ??= value;
  }
  return parts;
}

export function bytesOfHex(hex: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(Math.floor(hex.length / 2));
  for (let at = 0; at < bytes.length; at++) bytes[at] = Number.parseInt(hex.slice(2 * at, 2 * at + 2), 16);
  return bytes;
}

/** Whether `hex` is the HMAC-SHA256 of the texts, one after the other. */
export async function isSigned(
  key: Uint8Array<ArrayBuffer>,
  hex: string,
  ...texts: Uint8Array[]
): Promise<boolean> {
  const size = texts.reduce((sum, text) => sum + text.length, 0);
  const signed = new Uint8Array(size);
  let at = 0;
  for (const text of texts) {
    signed.set(text, at);
    at += text.length;
  }
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", key, algorithm, false, ["verify"]);
  // Compares in constant time.
  return hex.length === 64 && crypto.subtle.verify("HMAC", imported, bytesOfHex(hex), signed);
}

/**
 * Whether the server signed this body with one of the keys: `t=<seconds>,v1=<hex>`, the HMAC-SHA256 of
 * `{t}.{body}`, not older than five minutes; or the old form alone, `sha256=<hex>` of the body. A request
 * with both must have both a present time and a right `v1`.
 */
export async function verifySignature(
  keys: readonly string[],
  header: string | null,
  body: Uint8Array,
  nowMs: number,
): Promise<Verdict> {
  if (header === null || header.trim() === "") return "missing";
  const { t, v1, sha256 } = partsOf(header);
  const isCurrent = t !== undefined || v1 !== undefined;
  if (isCurrent) {
    if (t === undefined || v1 === undefined || !/^\d{1,12}$/.test(t)) return "invalid";
    if (Math.abs(nowMs / 1_000 - Number(t)) > signatureSkewSecondsMax) return "invalid";
  }
  for (const key of keys) {
    const bytes = encoder.encode(key);
    const isValid = isCurrent
      ? await isSigned(bytes, v1!, encoder.encode(`${t}.`), body)
      : sha256 !== undefined && (await isSigned(bytes, sha256, body));
    if (isValid) return "valid";
  }
  return "invalid";
}

/** The body of a request; undefined when it has more bytes. */
export async function readBody(request: Request, bytesMax: number): Promise<Uint8Array | undefined> {
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > bytesMax) return undefined;
  const body = new Uint8Array(await request.arrayBuffer());
  return body.length > bytesMax ? undefined : body;
}
