import type { Static, TSchema } from "@sinclair/typebox";
import { compiled } from "../kit/explain.ts";
import type { Log } from "../kit/log.ts";
import type { Bus, BusChannel, BusChannels, BusTransport, Requests } from "./bus.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Undefined for a malformed message, which the reader has logged. */
export type MessageReader<Message> = (payload: Uint8Array, subject: string) => Message | undefined;

/** Reads JSON of one shape. The log gets the place of a mistake, never the content, which may be secret. */
export function messageReader<Shape extends TSchema>(
  shape: Shape,
  log: Pick<Log, "warn">,
): MessageReader<Static<Shape>> {
  const check = compiled(() => shape);
  return (payload, subject) => {
    let message: unknown;
    try {
      message = JSON.parse(decoder.decode(payload));
    } catch {
      // The parser's error quotes the payload. Undefined fits no shape, so the check refuses it.
    }
    if (check().Check(message)) return message;
    const first = check().Errors(message).First();
    log.warn("bus.malformed_message", { subject, path: first?.path, reason: first?.message });
    return undefined;
  };
}

function channel<Message>(
  transport: BusTransport,
  subject: string,
  read: MessageReader<Message>,
): BusChannel<Message> {
  return {
    publish: (message) => transport.hint(subject, JSON.stringify(message)),
    listen: (handler) => transport.onHint(subject, handling(read, handler)),
    encode: (message) => JSON.stringify(message),
    send: (encoded, timeoutMs) => transport.send(subject, encoded, timeoutMs),
  };
}

function channels<Message>(
  transport: BusTransport,
  prefix: string,
  read: MessageReader<Message>,
  bytesMax: number,
): BusChannels<Message> {
  return {
    publish(token, message) {
      const payload = encoder.encode(JSON.stringify(message));
      if (payload.length > bytesMax) return false;
      transport.hint(`${prefix}.${token}`, payload);
      return true;
    },
    listen: (token, handler) => transport.onHint(`${prefix}.${token}`, handling(read, handler)),
  };
}

const handling =
  <Message>(read: MessageReader<Message>, handler: (message: Message) => void) =>
  (payload: Uint8Array, subject: string) => {
    const message = read(payload, subject);
    if (message !== undefined) handler(message);
  };

interface Replies<Reply> {
  encode: (reply: Reply) => string;
  read: MessageReader<Reply>;
}

function requests<Request, Reply>(
  transport: BusTransport,
  subject: string,
  read: MessageReader<Request>,
  replies: Replies<Reply>,
): Requests<Request, Reply> {
  return {
    async askAll(request, options) {
      const found: Reply[] = [];
      for (const payload of await transport.requestMany(subject, JSON.stringify(request), options)) {
        const reply = replies.read(payload, subject);
        if (reply !== undefined) found.push(reply);
      }
      return found;
    },
    answer: (handler) =>
      transport.onRequest(subject, async (payload) => {
        const request = read(payload, subject);
        // The error reply tells the node that asked; without a reply it would wait for its timeout.
        if (request === undefined) throw new Error("malformed request");
        return replies.encode(await handler(request));
      }),
  };
}

const textReplies: Replies<unknown> = { encode: String, read: (payload) => decoder.decode(payload) };

/** The bus that the rest of the server uses: the transport, with every message checked on arrival. */
export function busOver(transport: BusTransport, log: Pick<Log, "warn">): Bus {
  const repliesOf = (reply: TSchema | "text"): Replies<unknown> =>
    reply === "text" ? textReplies : { encode: JSON.stringify, read: messageReader(reply, log) };
  return {
    ...transport,
    channel: (subject, shape) => channel(transport, subject, messageReader(shape, log)),
    channels: (prefix, shape, bytesMax = Number.POSITIVE_INFINITY) =>
      channels(transport, prefix, messageReader(shape, log), bytesMax),
    requests: (subject, shape, reply) =>
      requests(transport, subject, messageReader(shape, log), repliesOf(reply)) as never,
  };
}
