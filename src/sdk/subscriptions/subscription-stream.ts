import { shownUrl } from "../wire/addresses.ts";
import { envelope, readEnvelopes } from "../wire/envelopes.ts";
import { errorOfAnswer, SvcError } from "../wire/errors.ts";
import type { Transport } from "../wire/transport.ts";
import { type Arrived, type Ask, type Asker, digits, type Way } from "./subscription-ways.ts";

interface EventMessage {
  eventId?: string;
  topic?: string;
  data?: unknown;
  dataValue?: unknown;
  sequence?: string;
  epoch?: string;
  metadata?: { timestamp?: string; custom?: Record<string, unknown> };
}

export function arrivedOf(message: EventMessage): Arrived {
  const { eventId, metadata = {} } = message;
  const sequence = digits(message.sequence);
  return {
    topic: message.topic ?? "",
    data: message.data ?? message.dataValue ?? null,
    ...(eventId && { eventId }),
    ...(sequence && { sequence }),
    ...(metadata.timestamp && { timestamp: metadata.timestamp }),
    ...(metadata.custom && { metadata: metadata.custom }),
  };
}

const messageOf = ({ pattern, replay, filter, startAfter, epoch }: Ask) => ({
  pattern,
  options: {
    includeMetadata: true,
    withStart: true,
    withPositions: true,
    ...(replay && { replay }),
    ...(filter && { filter }),
    ...(startAfter !== undefined && { startAfterSequence: `${startAfter}` }),
    ...(epoch !== undefined && { epoch: `${epoch}` }),
  },
});

export interface StreamRequest {
  /** `PubSubService/Subscribe` */
  method: string;
  message: unknown;
  signal: AbortSignal;
  /** A promise while the reader has no room. Nothing is read, so the full connection stops the server. */
  room?: () => Promise<void> | undefined;
}

/** A server stream of JSON messages over fetch. Resolves at an end without error, rejects with SvcError. */
export async function readStream(
  transport: Transport,
  request: StreamRequest,
  onMessage: (message: Record<string, unknown>) => void,
): Promise<void> {
  const headers = await transport.headers();
  const { url } = transport;
  try {
    await readStreamAt(url, headers, request, onMessage);
  } finally {
    if (!request.signal.aborted) transport.lost?.(url);
  }
}

async function readStreamAt(
  url: string,
  headers: Record<string, string>,
  { method, message, signal, room }: StreamRequest,
  onMessage: (message: Record<string, unknown>) => void,
): Promise<void> {
  const cut = (cause?: unknown) => {
    const why = cause instanceof Error ? `: ${cause.message}` : "";
    return new SvcError("unreachable", `${shownUrl(url)} ended the stream${why}`, { retryable: true, cause });
  };
  let response: Response;
  let reader: ReadableStreamDefaultReader<Uint8Array>;
  try {
    response = await fetch(`${url}/svc.v1.${method}`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/connect+json", "connect-protocol-version": "1" },
      body: envelope(JSON.stringify(message)),
      signal,
    });
    if (!response.ok)
      throw errorOfAnswer(response.status, await response.text(), response.headers.get("retry-after"));
    reader = (response.body as ReadableStream<Uint8Array>).getReader();
  } catch (error) {
    throw error instanceof SvcError ? error : cut(error);
  }
  let end: { error: SvcError | undefined } | undefined;
  const envelopes = readEnvelopes(onMessage, (error) => {
    end = { error };
  });
  for (;;) {
    const piece = await reader.read().catch((error) => {
      throw cut(error);
    });
    if (piece.value) {
      try {
        envelopes.take(piece.value);
      } catch (cause) {
        const said = "the stream brought something that is no message";
        throw new SvcError("bad_answer", said, { retryable: true, cause });
      }
    }
    const full = room?.();
    if (full) await full;
    if (end?.error) throw end.error;
    if (end) return;
    if (piece.done) throw cut();
  }
}

/** A subscription as a request of its own. */
export const streamWay =
  (transport: Transport): Way =>
  (ask: Ask, to: Asker) => {
    const stop = new AbortController();
    let started = false;
    const begin = (sequence?: bigint, epoch?: bigint) => {
      started = true;
      to.started({ ...(sequence !== undefined && { sequence }), ...(epoch !== undefined && { epoch }) });
    };
    const take = (message: EventMessage) => {
      if (stop.signal.aborted) return;
      if (message.topic === undefined || message.topic === "") {
        // Zero is left out on the wire.
        const sequence = digits(message.sequence) ?? 0n;
        if (started) to.passed(sequence);
        else begin(sequence, digits(message.epoch) ?? 0n);
        return;
      }
      if (!started) begin();
      const arrived = arrivedOf(message);
      // This transport has no such option.
      to.arrived(ask.topicOnly ? { ...arrived, data: null } : arrived);
    };
    const request = { method: "PubSubService/Subscribe", message: messageOf(ask), signal: stop.signal };
    readStream(transport, request, take).then(
      () => !stop.signal.aborted && to.ended(undefined),
      (error: unknown) => {
        if (stop.signal.aborted) return;
        stop.abort();
        to.ended(error instanceof SvcError ? error : new SvcError("bad_answer", String(error)));
      },
    );
    return () => stop.abort();
  };
