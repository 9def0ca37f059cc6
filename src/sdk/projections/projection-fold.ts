import { isFinal } from "../wire/errors.ts";
import { outputText } from "../wire/payload.ts";
import { delayAfter } from "../wire/retry.ts";
import { type HeldState, PartitionStates, type StoredState } from "./projection-states.ts";
import type { ProjectedEvent, SvcProjection } from "./projection-types.ts";

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
