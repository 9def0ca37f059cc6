import { readStream } from "../subscriptions/subscription-stream.ts";
import { SvcError } from "../wire/errors.ts";
import { all, count, type Message, payload, text } from "../wire/read.ts";
import { delayAfter, pause } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { ProjectedEvent, SvcProjection } from "./projection-types.ts";

/** A projection as a runner finds it. */
export interface ProjectionPlace {
  /** Of the registered definition. */
  version: number;
  status: string;
  /** The generation that is read, and the one that is folded beside it; 0 for none. */
  generation: number;
  building: number;
}

export const readPlace = (message: Message): ProjectionPlace => ({
  version: count(message.version),
  status: text(message.status),
  generation: count(message.generation),
  building: count(message.buildingGeneration),
});

export const definitionMessage = ({
  name,
  events,
  version,
  partitionKey,
  work,
  recording,
}: SvcProjection): Message => ({
  ...{ name, events, version, mode: work.mode },
  ...(partitionKey !== "" && { partitionKey }),
  ...(recording && { recording }),
});

/** For projections that the server folds. */
export const sqlMessage = (
  { name, events }: SvcProjection,
  work: { tableSql: string; statements: Record<string, string>; description: string },
): Message => ({
  ...{ name, events, tableSql: work.tableSql, eventHandlers: work.statements },
  ...(work.description !== "" && { description: work.description }),
});

function readProjected(message: Message): ProjectedEvent {
  const { __partition: partition, ...metadata } = (message.metadata ?? {}) as Record<string, unknown>;
  return {
    id: text(message.id),
    name: text(message.name),
    data: payload(message, "data"),
    timestamp: text(message.timestamp),
    version: count(message.version) || 1,
    source: text(message.source),
    metadata,
    sequence: count(message.seq),
    partition: text(partition),
  };
}

export interface RunnerBatch {
  events: ProjectedEvent[];
  /** Of the lease under which they came. */
  fence: number;
}

/** The events of one generation of a projection, as one runner gets them. */
export interface ProjectionFeed {
  /** Whether events come before those that came earlier are saved. */
  readonly readsAhead: boolean;
  /** Undefined when the server ended the feed, or it was left. Throws SvcError. */
  next(): Promise<RunnerBatch | undefined>;
  /** Nothing more is given out; the server still counts the runner as there. */
  leave(): void;
  close(): void;
}

export interface FeedOptions {
  transport: Transport;
  name: string;
  runnerId: string;
  generation: number;
  batchSize: number;
  gatherMs: number;
  /** A generation is folded beside the one that is read, or (0) no more. */
  onBuilding: (generation: number) => void;
}

const askOf = ({ name, runnerId, generation, batchSize }: FeedOptions): Message => ({
  ...{ name, runnerId, generation: `${generation}`, batchSize },
});

/** A stream that says nothing at first goes through something that holds it back: polls get through. */
const helloMsMax = 10_000;
/** The server says something every 15 seconds. */
const silenceMsMax = 45_000;
const lookMs = 1_000;

/** Whether the server, or what stands before it, does not stream to this runner. */
export const mustPoll = ({ code, status }: SvcError): boolean =>
  code === "unimplemented" || code === "http_404" || status === 501;

export class StreamFeed implements ProjectionFeed {
  readonly readsAhead = true;
  readonly #options: FeedOptions;
  readonly #stop = new AbortController();
  readonly #timer: ReturnType<typeof setInterval>;
  #unread: ProjectedEvent[] = [];
  #fence = 0;
  #building = 0;
  #heardAt: number | undefined;
  #end: { error: SvcError | undefined } | undefined;
  #wake = () => {};
  #makeRoom = () => {};

  constructor(options: FeedOptions) {
    this.#options = options;
    const openedAt = performance.now();
    const request = {
      method: "ProjectionService/StreamProjectionEvents",
      message: { ...askOf(options), acceptHeartbeats: true },
      signal: this.#stop.signal,
      room: () => this.#room(),
    };
    readStream(options.transport, request, (message) => this.#take(message)).then(
      () => this.#over(undefined),
      (error: unknown) =>
        this.#over(error instanceof SvcError ? error : new SvcError("bad_answer", String(error))),
    );
    this.#timer = setInterval(() => {
      const silentMs = performance.now() - (this.#heardAt ?? openedAt);
      if (this.#heardAt === undefined && silentMs > helloMsMax)
        this.#over(new SvcError("unimplemented", "the stream brought nothing"));
      else if (silentMs > silenceMsMax && this.#unread.length === 0)
        this.#over(new SvcError("unreachable", "the stream has gone silent", { retryable: true }));
    }, lookMs);
    (this.#timer as { unref?: () => void }).unref?.();
  }

  async next(): Promise<RunnerBatch | undefined> {
    const { batchSize, gatherMs } = this.#options;
    while (this.#unread.length === 0 && !this.#end) await this.#news();
    if (this.#unread.length < batchSize && gatherMs > 0 && !this.#end) await this.#filled(gatherMs);
    if (this.#end) {
      if (this.#end.error) throw this.#end.error;
      return undefined;
    }
    const events = this.#unread.slice(0, batchSize);
    this.#unread = this.#unread.slice(batchSize);
    if (this.#unread.length <= batchSize) this.#makeRoom();
    return { events, fence: this.#fence };
  }

  leave(): void {
    this.#end ??= { error: undefined };
    this.#unread = [];
    this.#wake();
    this.#makeRoom();
  }

  close(): void {
    this.leave();
    clearInterval(this.#timer);
    this.#stop.abort();
  }

  #take(message: Message): void {
    this.#heardAt = performance.now();
    if (this.#end) return;
    this.#fence = count(message.fence);
    if (message.id !== undefined) {
      this.#unread.push(readProjected(message));
      if (this.#unread.length === 1 || this.#unread.length === this.#options.batchSize) this.#wake();
      return;
    }
    const building = count(message.buildingGeneration);
    if (building === this.#building) return;
    this.#building = building;
    this.#options.onBuilding(building);
  }

  #over(error: SvcError | undefined): void {
    this.#end ??= { error };
    this.close();
  }

  #news(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** Resolves with a full batch, or when the time for gathering is over. */
  async #filled(ms: number): Promise<void> {
    const over = new AbortController();
    this.#wake = () => over.abort();
    await pause(ms, over.signal);
  }

  #room(): Promise<void> | undefined {
    if (this.#end || this.#unread.length <= this.#options.batchSize) return undefined;
    return new Promise((resolve) => {
      this.#makeRoom = () => {
        this.#heardAt = performance.now();
        resolve();
      };
    });
  }
}

/** Longer than the server holds a poll. */
const pollMsMax = 90_000;
/** A poll answered sooner, without an event, was not held: the projection is paused, or the server leaves. */
const heldMsMin = 250;
const idleFirstMs = 250;
const idleMsMax = 10_000;

export class PollFeed implements ProjectionFeed {
  readonly readsAhead = false;
  readonly #options: FeedOptions;
  readonly #stop = new AbortController();
  #building = 0;
  #isLeft = false;

  constructor(options: FeedOptions) {
    this.#options = options;
  }

  async next(): Promise<RunnerBatch | undefined> {
    const { signal } = this.#stop;
    for (let idle = 0; !this.#isLeft; ) {
      const askedAt = performance.now();
      const answer = await this.#poll();
      if (!answer || this.#isLeft) return undefined;
      const building = count(answer.buildingGeneration);
      if (building !== this.#building) this.#options.onBuilding(building);
      this.#building = building;
      const events = all(answer.events, readProjected);
      if (events.length > 0) return { events, fence: count(answer.fence) };
      if (performance.now() - askedAt >= heldMsMin) idle = 0;
      else await pause(delayAfter(++idle, idleFirstMs, idleMsMax) * (0.5 + Math.random() / 2), signal);
    }
    return undefined;
  }

  leave(): void {
    this.#isLeft = true;
    this.#stop.abort();
  }

  close(): void {
    this.leave();
  }

  /** Undefined when it was given up. */
  async #poll(): Promise<Message | undefined> {
    const { transport } = this.#options;
    const { signal } = this.#stop;
    try {
      const how = { repeatable: true, timeoutMs: pollMsMax, signal };
      return await transport.rpc<Message>(
        "ProjectionService/PollProjectionEvents",
        askOf(this.#options),
        how,
      );
    } catch (error) {
      if (signal.aborted) return undefined;
      throw error;
    }
  }
}
