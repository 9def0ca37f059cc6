import type { ClientHttp2Session, ClientHttp2Stream } from "node:http2";
import { SvcError } from "./errors.ts";

/** One conversation over HTTP/2: JSON messages in the envelopes of the Connect protocol. */
export interface StreamSocket {
  send(message: object): void;
  /** Nothing more is said; what the server still has to say is heard. */
  hangUp(): void;
  destroy(): void;
}

export interface StreamSocketOptions {
  url: string;
  path: string;
  headers: Record<string, string>;
  onMessage: (message: Record<string, unknown>) => void;
  /** Called once. Undefined for an end without an error. */
  onEnd: (error: SvcError | undefined) => void;
}

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

function envelope(text: string): Uint8Array {
  const body = new TextEncoder().encode(text);
  const bytes = new Uint8Array(headBytes + body.length);
  new DataView(bytes.buffer).setUint32(1, body.length);
  bytes.set(body, headBytes);
  return bytes;
}

function endOf(text: string): SvcError | undefined {
  const { error } = JSON.parse(text) as { error?: { code?: string; message?: string } };
  if (!error) return undefined;
  const code = error.code ?? "unknown";
  const status = statusOfCode[code] ?? 500;
  return new SvcError(code, error.message ?? code, { status, retryable: status >= 429 && status !== 501 });
}

export async function openStreamSocket(options: StreamSocketOptions): Promise<StreamSocket> {
  // Only workers on streams need it.
  const { connect } = await import("node:http2");
  const session: ClientHttp2Session = connect(new URL(options.url).origin);
  let over = false;
  let unread: Buffer = Buffer.alloc(0);
  let status = 0;

  const end = (error: SvcError | undefined) => {
    if (over) return;
    over = true;
    session.destroy();
    options.onEnd(error);
  };
  const cut = (cause?: unknown) => {
    const why = cause instanceof Error ? cause.message : "the connection has ended";
    end(new SvcError("unreachable", `${options.url}: ${why}`, { retryable: true, cause }));
  };

  const base = new URL(options.url).pathname.replace(/\/+$/, "");
  const stream: ClientHttp2Stream = session.request({
    ":method": "POST",
    ":path": base + options.path,
    ...options.headers,
    "content-type": "application/connect+json",
    "connect-protocol-version": "1",
  });
  session.on("error", cut);
  stream.on("error", cut);
  session.on("close", () => cut());
  stream.on("close", () => cut());
  stream.on("response", (headers) => {
    status = Number(headers[":status"]);
  });
  stream.on("end", () => {
    if (status === 200) return cut();
    const retryable = status >= 500 || status === 429 || status === 0;
    end(
      new SvcError(`http_${status}`, `the stream was answered with status ${status}`, { status, retryable }),
    );
  });
  stream.on("data", (bytes: Buffer) => {
    if (status !== 200) return;
    unread = unread.length === 0 ? bytes : Buffer.concat([unread, bytes]);
    try {
      while (!over && unread.length >= headBytes) {
        const length = unread.readUInt32BE(1);
        if (unread.length < headBytes + length) return;
        const flags = unread[0]!;
        const text = unread.toString("utf8", headBytes, headBytes + length);
        unread = unread.subarray(headBytes + length);
        if (flags & lastEnvelope) end(endOf(text));
        else options.onMessage(JSON.parse(text) as Record<string, unknown>);
      }
    } catch (cause) {
      end(
        new SvcError("bad_answer", "the stream brought something that is no message", {
          retryable: true,
          cause,
        }),
      );
    }
  });

  return {
    send(message) {
      if (!over && !stream.destroyed) stream.write(envelope(JSON.stringify(message)));
    },
    hangUp() {
      if (!over && !stream.destroyed) stream.end();
    },
    destroy: () => end(undefined),
  };
}
