import { isFinal } from "../wire/errors.ts";
import { delayAfter } from "../wire/retry.ts";
import type { FoldFailure } from "./projection-fold.ts";
import type { EffectContext, ProjectedEvent, SvcProjection } from "./projection-types.ts";

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
