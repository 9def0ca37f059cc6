import { messageOf, SvcError } from "../wire/errors.ts";
import { count, type Message, payload } from "../wire/read.ts";
import { pause, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { Logger } from "../wire/types.ts";
import { PollFeed, type ProjectionFeed, StreamFeed } from "./projection-feed.ts";
import { type FoldFailure, handleBatch, ProjectionFold, type StoredState } from "./projection-fold.ts";
import { acknowledge, type RunnerLease, reportFailure, saveStates } from "./projection-saves.ts";
import type { ProjectedEvent, SvcProjection } from "./projection-types.ts";

export interface RunnerOptions {
  transport: Transport;
  projection: SvcProjection;
  /** Of this process alone: what is in memory belongs to it. */
  runnerId: string;
  log: Logger;
  onBuilding: (generation: number) => void;
}

/** Folds one generation of a projection for as long as it has one feed. */
export class GenerationRunner {
  readonly #options: RunnerOptions;
  readonly #generation: number;
  readonly #halt = new AbortController();
  #isLeaving = false;
  #feed: ProjectionFeed | undefined;
  /** Zero until events have come. */
  #fence = 0;
  readonly #fold: ProjectionFold | undefined;

  constructor(options: RunnerOptions, generation: number) {
    this.#options = options;
    this.#generation = generation;
    const { projection } = options;
    if (projection.work.mode !== "managed") return;
    this.#fold = new ProjectionFold(projection, {
      read: (partition) => this.#read(partition),
      pause: (ms) => pause(ms, this.#halt.signal),
      isLeaving: () => this.#isLeaving,
      onRetry: (failure, attempt) => this.#tell(failure, attempt),
    });
  }

  /** Resolves when the server ended the feed or the runner was left; throws SvcError. */
  async run(isStream: boolean): Promise<void> {
    const feed = this.#open(isStream);
    this.#feed = feed;
    if (this.#isLeaving) feed.leave();
    try {
      for (;;) {
        const batch = await feed.next();
        if (!batch) return;
        // Another holder has been there, or the states were thrown away: nothing in memory counts.
        if (batch.fence !== this.#fence) this.#fold?.clear();
        this.#fence = batch.fence;
        if (!feed.readsAhead) this.#fold?.resume();
        const mayGoOn = await (this.#fold
          ? this.#foldBatch(this.#fold, batch.events)
          : this.#handle(batch.events));
        if (!mayGoOn) return;
      }
    } finally {
      feed.close();
    }
  }

  /** Finishes what is under way, saves it, and takes nothing more. */
  leave(): void {
    this.#isLeaving = true;
    this.#feed?.leave();
  }

  /** At once: what is under way is not saved. */
  abort(): void {
    this.leave();
    this.#halt.abort();
    this.#feed?.close();
  }

  #open(isStream: boolean): ProjectionFeed {
    const { transport, projection, runnerId, onBuilding } = this.#options;
    const { name, batchSize, gatherMs } = projection;
    const generation = this.#generation;
    const options = { transport, name, runnerId, generation, batchSize, gatherMs, onBuilding };
    return isStream ? new StreamFeed(options) : new PollFeed(options);
  }

  get #lease(): RunnerLease {
    const { projection, runnerId } = this.#options;
    return { name: projection.name, runnerId, generation: this.#generation, fence: this.#fence };
  }

  async #read(partition: string): Promise<StoredState> {
    const { transport, projection } = this.#options;
    const message = { name: projection.name, partition, generation: `${this.#generation}` };
    const path = "/svc.v1.ProjectionService/GetProjection";
    // What is written is what the runner itself has yet to fold.
    const request = { method: "POST" as const, path, body: message, isConsistent: false };
    const found = await transport.call<Message>(request, safe);
    return { state: payload(found, "state"), position: count(found.stateLastEventSeq) };
  }

  async #foldBatch(fold: ProjectionFold, events: readonly ProjectedEvent[]): Promise<boolean> {
    const { transport } = this.#options;
    const { written, failures } = await fold.fold(events);
    this.#requireGoing();
    const refused = await saveStates(transport, this.#lease, written);
    for (const failure of [...failures, ...refused]) {
      this.#requireGoing();
      await reportFailure(transport, this.#lease, failure);
      fold.stop(failure.partition);
      this.#tell(failure);
    }
    fold.states.trim();
    return true;
  }

  /** False when the projection stops. */
  async #handle(events: readonly ProjectedEvent[]): Promise<boolean> {
    const { transport, projection, log } = this.#options;
    const { last, failure } = await handleBatch(projection, events, {
      ...{ signal: this.#halt.signal, log },
      pause: (ms) => pause(ms, this.#halt.signal),
      isLeaving: () => this.#isLeaving,
      onRetry: (failed, attempt) => this.#tell(failed, attempt),
    });
    this.#requireGoing();
    if (last) await acknowledge(transport, this.#lease, last);
    if (!failure) return true;
    await reportFailure(transport, this.#lease, failure);
    this.#tell(failure);
    return false;
  }

  #requireGoing(): void {
    if (this.#halt.signal.aborted) throw new SvcError("worker_stopped", "the worker was stopped");
  }

  /** Without an attempt it was the last one. */
  #tell({ partition, event, error }: FoldFailure, attempt?: number): void {
    const { projection, log } = this.#options;
    const reason = messageOf(error);
    const fields = { projection: projection.name, partition, event: event.id, reason };
    if (attempt !== undefined)
      log.debug("a projection's handler failed; trying again", { ...fields, attempt });
    else log.error("a projection's handler failed for good; its partition stops", fields);
  }
}
