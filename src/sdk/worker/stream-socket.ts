import type { ClientHttp2Session, ClientHttp2Stream } from "node:http2";
import { shownUrl } from "../wire/addresses.ts";
import { envelope, readEnvelopes } from "../wire/envelopes.ts";
import { SvcError } from "../wire/errors.ts";

/** One conversation over HTTP/2: JSON messages in the envelopes of the Connect protocol. */
export type StreamSocket = Awaited<ReturnType<typeof openStreamSocket>>;

export interface StreamSocketOptions {
  url: string;
  path: string;
  headers: Record<string, string>;
  onMessage: (message: Record<string, unknown>) => void;
  /** Called once. Undefined for an end without an error. */
  onEnd: (error: SvcError | undefined) => void;
}

export async function openStreamSocket(options: StreamSocketOptions) {
  // Only workers on streams need it.
  const { connect } = await import("node:http2");
  const session: ClientHttp2Session = connect(new URL(options.url).origin);
  let over = false;
  let status = 0;

  const end = (error: SvcError | undefined) => {
    if (over) return;
    over = true;
    session.destroy();
    options.onEnd(error);
  };
  const cut = (cause?: unknown) => {
    const why = cause instanceof Error ? cause.message : "the connection has ended";
    end(new SvcError("unreachable", `${shownUrl(options.url)}: ${why}`, { retryable: true, cause }));
  };

  const envelopes = readEnvelopes((message) => {
    if (!over) options.onMessage(message);
  }, end);
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
    try {
      envelopes.take(bytes);
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
    send(message: object) {
      if (!over && !stream.destroyed) stream.write(envelope(JSON.stringify(message)));
    },
    /** Ends this side of the stream; messages of the server still arrive. */
    hangUp() {
      if (!over && !stream.destroyed) stream.end();
    },
    destroy: () => end(undefined),
  };
}
