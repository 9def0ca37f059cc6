import { gunzipSync } from "node:zlib";
import { Fault } from "../kit/fault.ts";
import { parseJsonBytes } from "../kit/payload-json.ts";
import type { BodyRead } from "./body-budget.ts";

/** A body that was not read to its end; `head` is what came of it first, where any was read. */
export class UnreadBody extends Fault {
  readonly head: Uint8Array | undefined;

  constructor(bytesMax: number, head?: Uint8Array) {
    super("payload_too_large", `request body is larger than ${bytesMax} bytes`);
    this.head = head;
  }
}

const headBytesMax = 4 * 1024;

/** The first characters of a body that is too large; empty where none came, and of a packed one. */
export async function headOf(request: Request, { head }: UnreadBody): Promise<string> {
  if (encodingOf(request) !== undefined) return "";
  let bytes = head;
  if (bytes === undefined && request.body && !request.bodyUsed) {
    const reader = request.body.getReader();
    bytes = (await reader.read().catch(() => undefined))?.value;
    void reader.cancel().catch(() => {});
  }
  return new TextDecoder().decode(bytes?.subarray(0, headBytesMax));
}

/**
 * A caller that cuts an upload short, or sends malformed chunks, gets a fault; it is no defect of the server.
 */
const cutShort = (cause: unknown) =>
  new Fault("invalid_argument", "the request body could not be read to its end", { cause });

/**
 * The `Content-Length`, or undefined for a chunked body. Throws before a byte is read when it is too large.
 */
function promisedLength(request: Request, bytesMax: number): number | undefined {
  const header = request.headers.get("content-length");
  if (header === null) return undefined;
  const length = Number(header);
  if (length > bytesMax) throw new UnreadBody(bytesMax);
  return length;
}

async function readPieces(request: Request, bytesMax: number, reading?: BodyRead): Promise<Uint8Array> {
  if (!request.body) return new Uint8Array();
  const pieces: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const piece of request.body as unknown as AsyncIterable<Uint8Array>) {
      length += piece.byteLength;
      // Leaving the loop cancels the stream, so the rest is never held.
      if (length > bytesMax) throw new UnreadBody(bytesMax, pieces[0] ?? piece);
      reading?.acquire(piece.byteLength);
      pieces.push(piece);
    }
  } catch (error) {
    throw error instanceof Fault ? error : cutShort(error);
  }
  return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces, length);
}

function inflate(bytes: Uint8Array, encoding: string, bytesMax: number): Uint8Array {
  if (encoding !== "gzip") {
    throw new Fault("unimplemented", `unknown Content-Encoding ${encoding}: supported are gzip and identity`);
  }
  try {
    return gunzipSync(bytes, { maxOutputLength: bytesMax });
  } catch (error) {
    const code = (error as { code?: unknown }).code;
    if (code === "ERR_BUFFER_TOO_LARGE") throw new UnreadBody(bytesMax);
    throw new Fault("invalid_argument", "request body is not gzip", { cause: error });
  }
}

const encodingOf = (request: Request) => {
  const encoding = request.headers.get("content-encoding");
  return encoding === null || encoding === "" || encoding === "identity" ? undefined : encoding.toLowerCase();
};

/**
 * For a `Content-Length` up to this the whole room is reserved; of a larger one, what has arrived is counted.
 */
const promiseBytesMax = 64 * 1024;
/** Bodies up to this are not counted: their connection takes more memory. */
const uncountedBytesMax = 4 * 1024;

export async function readSent(request: Request, bytesMax: number, reading?: BodyRead): Promise<Uint8Array> {
  const length = promisedLength(request, bytesMax);
  if (length === 0) return new Uint8Array();
  if (length !== undefined && length <= uncountedBytesMax) {
    try {
      return await request.bytes();
    } catch (error) {
      throw cutShort(error);
    }
  }
  try {
    if (length === undefined || length > promiseBytesMax) return await readPieces(request, bytesMax, reading);
    reading?.acquire(length);
    return await request.bytes();
  } catch (error) {
    throw error instanceof Fault ? error : cutShort(error);
  } finally {
    reading?.release();
  }
}

/** The body as sent, unpacked. */
export async function readBytes(request: Request, bytesMax: number, reading?: BodyRead): Promise<Uint8Array> {
  const bytes = await readSent(request, bytesMax, reading);
  const encoding = encodingOf(request);
  return encoding ? inflate(bytes, encoding, bytesMax) : bytes;
}

/** The body as JSON; undefined when there is none. */
export async function readJsonBody(
  request: Request,
  bytesMax: number,
  reading?: BodyRead,
  mend?: (body: unknown) => void,
): Promise<unknown> {
  const bytes = await readBytes(request, bytesMax, reading);
  return bytes.byteLength === 0 ? undefined : parseJsonBytes(bytes, undefined, mend);
}

const jsonType = /^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i;

/** Any JSON a REST client may send: `application/problem+json` included. */
export const isJson = (contentType: string | null): boolean =>
  contentType === "application/json" || (contentType !== null && jsonType.test(contentType));

const connectJsonType = /^application\/json\s*(?:;|$)/i;

/** Connect's unary JSON and nothing else: `application/grpc-web+json` is another protocol. */
export const isConnectJson = (contentType: string | null): boolean =>
  contentType === "application/json" || (contentType !== null && connectJsonType.test(contentType));
