import { isFinal } from "../wire/errors.ts";
import { outputText } from "../wire/payload.ts";
import { delayAfter } from "../wire/retry.ts";
import type { EffectContext, ProjectedEvent, SvcProjection } from "./projection-types.ts";

/** The state of one partition in memory. */
interface HeldState {
  state: unknown;
  /** Of the last event that is folded into it; 0 for none. */
  position: number;
  /** Undefined for a state as it was read. */
  last: ProjectedEvent | undefined;
  /** Length of its JSON as it was last written. */
  length: number;
}

/** A state as it is stored; position 0 where nothing was folded. */
export type StoredState = Pick<HeldState, "state" | "position">;

const lengthMax = 64 * 1024 * 1024;
const readsAtOnce = 16;

/** States of partitions, each read from the store before any fold. Those unused for longest leave first. */
class PartitionStates {
  readonly #read: (partition: string) => Promise<StoredState>;
  readonly #most: number;
  /** In the order of their last use. */
  readonly #held = new Map<string, HeldState>();
  #length = 0;

  constructor(read: (partition: string) => Promise<StoredState>, most: number) {
    this.#read = read;
    this.#most = most;
  }

  get(partition: string): HeldState | undefined {
    return this.#held.get(partition);
  }

  /** Reads those that are not held, and makes all of them the last used. */
  async want(partitions: ReadonlySet<string>): Promise<void> {
    const missing: string[] = [];
    for (const partition of partitions) {
      const held = this.#held.get(partition);
      if (!held) missing.push(partition);
      else {
        this.#held.delete(partition);
        this.#held.set(partition, held);
      }
    }
    for (let at = 0; at < missing.length; at += readsAtOnce)
      await Promise.all(missing.slice(at, at + readsAtOnce).map((partition) => this.reread(partition)));
  }

  /** Takes a state back to what is stored. */
  async reread(partition: string): Promise<HeldState> {
    this.drop(partition);
    const held = { ...(await this.#read(partition)), last: undefined, length: 0 };
    this.#held.set(partition, held);
    return held;
  }

  wrote(held: HeldState, length: number): void {
    this.#length += length - held.length;
    held.length = length;
  }

  drop(partition: string): void {
    this.#length -= this.#held.get(partition)?.length ?? 0;
    this.#held.delete(partition);
  }

  clear(): void {
    this.#held.clear();
    this.#length = 0;
  }

  /** To be called when everything is saved. */
  trim(): void {
    for (const partition of this.#held.keys()) {
      if (this.#held.size <= this.#most && this.#length <= lengthMax) return;
      this.drop(partition);
    }
  }
}

/** A state to be saved, as JSON. */
export interface WrittenState {
  partition: string;
  text: string;
  last: ProjectedEvent;
}

/** A handler failed for good at an event; its partition stops there. */
export interface FoldFailure {
  partition: string;
  event: ProjectedEvent;
  error: unknown;
}

export interface FoldHost {
  read(partition: string): Promise<StoredState>;
  /** Resolves early when the runner ends. */
  pause(ms: number): Promise<void>;
  /** No further event is to be begun. */
  isLeaving(): boolean;
  onRetry(failure: FoldFailure, attempt: number): void;
}

export interface FoldedBatch {
  written: WrittenState[];
  failures: FoldFailure[];
}

const isLater = (value: unknown): value is Promise<unknown> =>
  typeof (value as { then?: unknown } | null | undefined)?.then === "function";

/** Folds batches of events into states of partitions: the same for a worker and a test. */
export class ProjectionFold {
  readonly states: PartitionStates;
  readonly #projection: SvcProjection;
  readonly #fold: (state: unknown, event: ProjectedEvent) => unknown;
  readonly #host: FoldHost;
  /** Partitions that have stopped, while events that were sent before still come. */
  readonly #stopped = new Set<string>();

  constructor(projection: SvcProjection, host: FoldHost) {
    const { work } = projection;
    if (work.mode !== "managed") throw new TypeError(`projection ${projection.name} has no states`);
    this.#projection = projection;
    this.#fold = work.fold as never;
    this.#host = host;
    this.states = new PartitionStates(async (partition) => {
      const stored = await host.read(partition);
      return stored.position > 0 ? stored : { state: work.initial(partition), position: 0 };
    }, work.statesMax);
  }

  /** Everything in memory may differ from what is stored. */
  clear(): void {
    this.states.clear();
    this.#stopped.clear();
  }

  /** Of a partition that has stopped nothing is folded until `resume`. */
  stop(partition: string): void {
    this.#stopped.add(partition);
    this.states.drop(partition);
  }

  resume(): void {
    this.#stopped.clear();
  }

  async fold(events: readonly ProjectedEvent[]): Promise<FoldedBatch> {
    const partitions = new Set<string>();
    for (const { partition } of events) if (!this.#stopped.has(partition)) partitions.add(partition);
    await this.states.want(partitions);
    const dirty = new Map<string, HeldState>();
    const troubled = new Map<string, FoldFailure>();
    for (const event of events) {
      const { partition } = event;
      if (this.#host.isLeaving()) break;
      if (!partitions.has(partition) || troubled.has(partition)) continue;
      const held = this.states.get(partition)!;
      if (event.sequence <= held.position) continue;
      try {
        const folding = this.#apply(held, event);
        if (folding) await folding;
        dirty.set(partition, held);
      } catch (error) {
        dirty.delete(partition);
        troubled.set(partition, { partition, event, error });
      }
    }
    const failures: FoldFailure[] = [];
    await Promise.all(
      [...troubled.values()].map(async (trouble) => {
        const own = events.filter(({ partition }) => partition === trouble.partition);
        const { held, failure } = await this.#foldAgain(own, trouble);
        if (held.last) dirty.set(trouble.partition, held);
        if (failure) failures.push(failure);
      }),
    );
    return this.#write(dirty, failures);
  }

  /** A promise only where something takes time: most handlers do not. */
  #apply(held: HeldState, event: ProjectedEvent): Promise<void> | undefined {
    const { reader } = this.#projection;
    if (reader)
      return reader.read(event).then((read) => this.#settle(held, event, this.#fold(held.state, read)));
    return this.#settle(held, event, this.#fold(held.state, event));
  }

  #settle(held: HeldState, event: ProjectedEvent, next: unknown): Promise<void> | undefined {
    if (isLater(next)) return next.then((value) => this.#settle(held, event, value));
    if (next !== undefined) held.state = next;
    held.position = event.sequence;
    held.last = event;
    return undefined;
  }

  /** A handler that threw may have left its state half changed: each try begins with what is stored. */
  async #foldAgain(
    own: readonly ProjectedEvent[],
    trouble: FoldFailure,
  ): Promise<{ held: HeldState; failure: FoldFailure | undefined }> {
    const { maxAttempts, initialDelayMs } = this.#projection.retry;
    const { partition } = trouble;
    let failed = trouble;
    for (let attempt = 1; ; attempt++) {
      const isOver = attempt >= maxAttempts || isFinal(failed.error);
      if (!isOver) {
        this.#host.onRetry(failed, attempt);
        await this.#host.pause(delayAfter(attempt, initialDelayMs));
      }
      const held = await this.states.reread(partition);
      if (this.#host.isLeaving() && !isOver) return { held, failure: undefined };
      const wanted = isOver ? own.filter(({ sequence }) => sequence < failed.event.sequence) : own;
      const again = await this.#foldInto(held, wanted);
      if (!again) return { held, failure: isOver ? failed : undefined };
      failed = again;
    }
  }

  async #foldInto(held: HeldState, events: readonly ProjectedEvent[]): Promise<FoldFailure | undefined> {
    for (const event of events) {
      if (event.sequence <= held.position) continue;
      try {
        await this.#apply(held, event);
      } catch (error) {
        return { partition: event.partition, event, error };
      }
    }
    return undefined;
  }

  /** A state that is no JSON, or too large, fails at its last event. */
  #write(dirty: ReadonlyMap<string, HeldState>, failures: FoldFailure[]): FoldedBatch {
    const written: WrittenState[] = [];
    for (const [partition, held] of dirty) {
      const last = held.last!;
      try {
        const text = outputText(`the state of partition ${partition}`, held.state) ?? "null";
        this.states.wrote(held, text.length);
        written.push({ partition, text, last });
      } catch (error) {
        this.states.drop(partition);
        failures.push({ partition, event: last, error });
      }
    }
    return { written, failures };
  }
}

export interface EffectsHost extends Omit<EffectContext, "attempt"> {
  /** Resolves early when the runner ends. */
  pause(ms: number): Promise<void>;
  isLeaving(): boolean;
  onRetry(failure: FoldFailure, attempt: number): void;
}

export interface Handled {
  /** Everything up to this event is handled; undefined for nothing. */
  last: ProjectedEvent | undefined;
  /** The first event whose handler failed for good; nothing behind it counts. */
  failure: FoldFailure | undefined;
}

/** Hands a batch to the handlers of an external projection, some partitions at a time, each in order. */
export async function handleBatch(
  projection: SvcProjection,
  events: readonly ProjectedEvent[],
  host: EffectsHost,
): Promise<Handled> {
  const { work } = projection;
  if (work.mode !== "external") throw new TypeError(`projection ${projection.name} has states`);
  const handled = new Set<ProjectedEvent>();
  let failure: FoldFailure | undefined;
  const isBehind = ({ sequence }: ProjectedEvent) =>
    failure !== undefined && sequence > failure.event.sequence;
  const lanes = work.concurrency > 1 ? byPartition(events) : [events];

  async function follow(lane: readonly ProjectedEvent[]): Promise<void> {
    for (const event of lane) {
      if (host.isLeaving() || host.signal.aborted || isBehind(event)) return;
      const failed = await handleEvent(projection, event, host);
      if (failed === "left") return;
      // Other lanes go on up to it, so that everything before it is done.
      if (failed) {
        if (!isBehind(event)) failure = failed;
        return;
      }
      handled.add(event);
    }
  }

  const waiting = lanes[Symbol.iterator]();
  const following = async () => {
    for (const lane of waiting) await follow(lane);
  };
  await Promise.all(Array.from({ length: Math.min(work.concurrency, lanes.length) }, following));
  const undone = events.findIndex((event) => !handled.has(event));
  return { last: undone < 0 ? events.at(-1) : events[undone - 1], failure };
}

function byPartition(events: readonly ProjectedEvent[]): ProjectedEvent[][] {
  const lanes = new Map<string, ProjectedEvent[]>();
  for (const event of events) {
    const lane = lanes.get(event.partition);
    if (lane) lane.push(event);
    else lanes.set(event.partition, [event]);
  }
  return [...lanes.values()];
}

async function handleEvent(
  { work, reader, retry }: SvcProjection,
  event: ProjectedEvent,
  host: EffectsHost,
): Promise<FoldFailure | "left" | undefined> {
  if (work.mode !== "external") return undefined;
  const { signal, log } = host;
  for (let attempt = 1; ; attempt++) {
    try {
      const read = reader ? await reader.read(event) : event;
      await work.handle(read as never, { signal, log, attempt });
      return undefined;
    } catch (error) {
      const failure = { partition: event.partition, event, error };
      if (isFinal(error) || attempt >= retry.maxAttempts) return failure;
      if (host.isLeaving() || signal.aborted) return "left";
      host.onRetry(failure, attempt);
      await host.pause(delayAfter(attempt, retry.initialDelayMs));
    }
  }
}
