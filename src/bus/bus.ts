/**
 * What nodes say to each other. Nothing acked ever lives only here: hints may be lost, come twice or come
 * late, and every reader has a slow poll of the store as its net.
 */
export interface Bus {
  /** `in-process` or `nats`. */
  readonly kind: "in-process" | "nats";
  /**
   * Best effort, fire and forget; never throws, never blocks. Also delivered to this node's own listeners.
   */
  hint(subject: string, payload: Uint8Array | string): void;
  /**
   * A hint whose sender wants to know: resolves once the bus has it, which says nothing of who hears it.
   * Rejects with a BusError: `refused` when the bus will never take it, as it is too large or its subject
   * illegal, else when it could not be reached within `timeoutMs`.
   */
  send(subject: string, payload: Uint8Array | string, timeoutMs: number): Promise<void>;
  /**
   * `subject` may use `*` and a trailing `>`. Handlers are called in order of arrival for one subject and
   * sender.
   */
  onHint(subject: string, handler: (payload: Uint8Array, subject: string) => void): Unlisten;
  /**
   * One reply from one of the nodes that answer this subject; rejects with BusError after `timeoutMs`, or at
   * once when nobody answers.
   */
  request(subject: string, payload: Uint8Array | string, timeoutMs: number): Promise<Uint8Array>;
  /** All replies that arrive within `timeoutMs`, at most `repliesMax`. */
  requestMany(
    subject: string,
    payload: Uint8Array | string,
    options: { timeoutMs: number; repliesMax: number },
  ): Promise<Uint8Array[]>;
  /** Answers requests. A thrown error becomes an error reply. */
  onRequest(subject: string, handler: (payload: Uint8Array) => Promise<Uint8Array | string>): Unlisten;
  /** Nodes that have been heard of lately, this one included, sorted by id. */
  present(): readonly Presence[];
  /** Whether the bus can be reached right now. */
  connected(): boolean;
  /** Called on every change of `connected`. */
  onConnection(handler: (connected: boolean) => void): Unlisten;
  /**
   * Takes a name that one node has at a time, or keeps it; a holder that falls silent loses it after
   * `limits.nameKeptMs`. An election, not a lock: two nodes may believe that they have it, so who acts on it
   * is fenced by the store.
   */
  hold(name: string): Promise<Hold>;
  /** Frees the name at once when this node has it. */
  release(name: string): Promise<void>;
  /** Where the bus keeps what users outside may read; undefined where it keeps nothing. */
  readonly mirror?: Mirror;
  close(): Promise<void>;
}

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
   * Hands messages over in their order. Answers for each undefined once it is kept, or why it never will be
   * (`refused`). Rejects with another BusError when the bus cannot keep anything right now; some may have
   * been kept then.
   */
  publish(messages: readonly Mirrored[]): Promise<(BusError | undefined)[]>;
}

export type Hold = "mine" | "theirs" | "unreachable";

export type Unlisten = () => void;

export interface Presence {
  nodeId: string;
  /** Opaque facts the node told with its last sign of life. */
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
