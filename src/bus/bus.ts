import type { Static, TSchema } from "@sinclair/typebox";

/** What a node has of the bus besides messages. */
interface BusBase {
  /** `in-process` or `nats`. */
  readonly kind: "in-process" | "nats";
  /** Nodes with a recent heartbeat, this one included, sorted by id. */
  present(): readonly Presence[];
  /** Whether the bus can be reached right now. */
  connected(): boolean;
  /** Called on every change of `connected`. */
  onConnection(handler: (connected: boolean) => void): Unlisten;
  /**
   * Resolves when what any node publishes from now on reaches the listeners that this node has; after
   * `timeoutMs`, or without a connection, in any case.
   */
  listening(timeoutMs: number): Promise<void>;
  /**
   * Takes a name that one node has at a time, or keeps it; a holder that falls silent loses it after
   * `nameKeptMs`. An election, not a lock: two nodes may both take themselves for the holder, so
   * the store must fence what they do with it.
   */
  hold(name: string): Promise<Hold>;
  /** Frees the name at once when this node has it. */
  release(name: string): Promise<void>;
  /** Where the bus keeps what users outside may read; undefined where it keeps nothing. */
  readonly mirror?: Mirror;
  close(): Promise<void>;
}

/**
 * What nodes say to each other, in messages of known shapes. A message that does not fit the shape of its
 * subject is logged as `bus.malformed_message` and dropped: values of unknown types from a node of another
 * version, or from a stranger, would fail deep inside the server. Fields that a shape does not name pass, as
 * newer nodes may send them; fields that older nodes do not send are optional in the shape.
 */
export interface Bus extends BusBase {
  /** Messages of one shape on one subject. */
  channel<Shape extends TSchema>(subject: string, shape: Shape): BusChannel<Static<Shape>>;
  /**
   * Channels on `{prefix}.{token}`, one for each token; the token is one literal part of a subject. A message
   * of more than `bytesMax` is not sent.
   */
  channels<Shape extends TSchema>(
    prefix: string,
    shape: Shape,
    bytesMax?: number,
  ): BusChannels<Static<Shape>>;
  /** Requests of one shape that every node may answer; replies are JSON of a shape, or plain text. */
  requests<Shape extends TSchema, Reply extends TSchema | "text">(
    subject: string,
    shape: Shape,
    reply: Reply,
  ): Requests<Static<Shape>, Reply extends TSchema ? Static<Reply> : string>;
}

/**
 * Messages are hints: one may be lost, come twice or come late. Nothing acknowledged may live on the bus
 * alone, so every reader also polls the store, slowly.
 */
export interface BusChannel<Message> {
  /** Best effort: never throws, never blocks. Listeners of this node get the message too. */
  publish(message: Message): void;
  /** Messages of one sender arrive in their order. */
  listen(handler: (message: Message) => void): Unlisten;
  /** The message as text, for a sender that stores it before it calls `send`. */
  encode(message: Message): string;
  /**
   * Resolves when the bus has the message; whether a node listens stays unknown. Rejects with a BusError:
   * `refused` when the bus will never take the message, because it is too large; another one when the bus
   * could not be reached within `timeoutMs`.
   */
  send(encoded: string, timeoutMs: number): Promise<void>;
}

export interface BusChannels<Message> {
  /** As `BusChannel.publish`; false when the message is too large and was dropped. */
  publish(token: string, message: Message): boolean;
  listen(token: string, handler: (message: Message) => void): Unlisten;
}

export interface Requests<Request, Reply> {
  /** Asks every node that answers, this one too: the replies within `timeoutMs`, at most `repliesMax`. */
  askAll(request: Request, options: { timeoutMs: number; repliesMax: number }): Promise<Reply[]>;
  /** A thrown error becomes an error reply, which `askAll` leaves out. */
  answer(handler: (request: Request) => Promise<Reply>): Unlisten;
}

/**
 * Carries bytes between nodes: in one process, or core NATS. `busOver` makes a Bus of it; nothing outside
 * src/bus calls it, because its payloads are unchecked.
 */
export interface BusTransport extends BusBase {
  /** Best effort: never throws, never blocks. Listeners of this node get it too. */
  hint(subject: string, payload: Uint8Array | string): void;
  /** `BusChannel.send`; also `refused` when the subject is illegal. */
  send(subject: string, payload: Uint8Array | string, timeoutMs: number): Promise<void>;
  /**
   * `subject` may use `*` and a trailing `>`. Handlers are called in order of arrival for one subject and
   * sender.
   */
  onHint(subject: string, handler: (payload: Uint8Array, subject: string) => void): Unlisten;
  /**
   * One reply, from one of the nodes that answer this subject. Rejects with BusError: `no_responders` at once
   * when no node answers this subject, `timeout` after `timeoutMs`.
   */
  request(subject: string, payload: Uint8Array | string, timeoutMs: number): Promise<Uint8Array>;
  /** All replies that arrive within `timeoutMs`, at most `repliesMax`; none when no node answers there. */
  requestMany(
    subject: string,
    payload: Uint8Array | string,
    options: { timeoutMs: number; repliesMax: number },
  ): Promise<Uint8Array[]>;
  /** Answers requests. A thrown error becomes an error reply. */
  onRequest(subject: string, handler: (payload: Uint8Array) => Promise<Uint8Array | string>): Unlisten;
}

/** Whether other nodes have sent a recent heartbeat, so that a hint has a reader. */
export const hasOthers = (bus: Pick<Bus, "kind" | "present">): boolean =>
  bus.kind === "nats" && bus.present().length > 1;

/** A message for users of the bus outside. */
export interface Mirrored {
  /** Behind the mirror's own prefix; of tokens as subjects have them, without wildcards. */
  subject: string;
  /** Stable: the bus keeps one of several with the same id, when they come within some minutes. */
  id: string;
  payload: string;
  headers: Readonly<Record<string, string>>;
}

export interface Mirror {
  /**
   * Sends the messages in their order. The answer has for each message undefined when the bus keeps it, or
   * the error why the bus never will (`refused`). Rejects with another BusError when the bus cannot keep
   * anything right now; it may have kept some of the messages then.
   */
  publish(messages: readonly Mirrored[]): Promise<(BusError | undefined)[]>;
}

export type Hold = "mine" | "theirs" | "unreachable";

export type Unlisten = () => void;

export interface Presence {
  nodeId: string;
  /** What the node said of itself with its last heartbeat; the bus does not look at it. */
  facts: Record<string, unknown>;
  seenAt: number;
}

export class BusError extends Error {
  readonly trouble: "no_responders" | "timeout" | "disconnected" | "remote" | "refused";
  constructor(trouble: BusError["trouble"], message: string) {
    super(message);
    this.name = "BusError";
    this.trouble = trouble;
  }
}

/** Whether a message may be sent to the subject: tokens separated by dots, none empty, none a wildcard. */
export const isSubject = (text: string): boolean =>
  !/[\s\p{Cc}]/u.test(text) &&
  text.split(".").every((token) => token !== "" && token !== "*" && token !== ">");
