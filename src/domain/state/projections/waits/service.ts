import { Fault, invalid, missing, tryAgain } from "../../../../kit/fault.ts";
import { openHolderLimit } from "../../../../kit/holder-limit.ts";
import type { Store } from "../../../../store/store.ts";
import { findEvent } from "../event-rows.ts";
import {
  projectionHeartbeatMs,
  projectionWaitItemsMax,
  projectionWaitMsDefault,
  projectionWaitMsMax,
  projectionWaitStreamMsMax,
  projectionWaitsMax,
} from "../limits.ts";
import { getProjection } from "../rows.ts";
import { isStorable, partitionOf, unknownProjection } from "../rules.ts";
import { Rest, type Signals } from "../runners/signals.ts";
import {
  currentOf,
  gone,
  isFolded,
  type OpenWait,
  partitionText,
  progressOf,
  stateOf,
  WaitBoard,
  type WaitBoardDeps,
  type WaitTarget,
} from "./board.ts";

/** What a caller waits for. */
export interface WaitRequest {
  name: string;
  /** Until the projection has seen this position. */
  minPosition: number;
  /** Empty: the whole projection. */
  partition: string;
}

/** How a wait is followed. */
interface FollowOptions {
  timeoutMs: number;
  signal: AbortSignal;
}

export interface WaitResult {
  isCaughtUp: boolean;
  isTimedOut: boolean;
  current: number;
  target: number;
  /** Events of the projection between the two. */
  behind: number;
  /** Another generation is folded beside the one that was waited for. */
  isRebuilding: boolean;
  mode: string;
}

export interface WaitFrame extends WaitResult {
  kind: "progress" | "heartbeat" | "done";
  error: string;
}

export interface CatchupOptions {
  /** Undefined: the default. */
  timeoutMs: number | undefined;
  signal: AbortSignal;
}

/** Callers that wait until projections have seen a position. */
export type Waits = ReturnType<typeof openWaits>;

export interface WaitsDeps extends WaitBoardDeps {
  signals: Signals;
}

/** A wait that changed, that is over, or that gives a sign of life. */
interface WaitStep {
  wait: OpenWait;
  isOver: boolean;
  isBeat: boolean;
}

const timeoutOf = (timeoutMs: number | undefined, most: number): number => {
  if (timeoutMs === undefined) return Math.min(projectionWaitMsDefault, most);
  if (timeoutMs < 0 || timeoutMs > most) throw invalid("timeout", `must be from 0 to ${most / 1000} seconds`);
  return timeoutMs;
};

export function openWaits(deps: WaitsDeps) {
  const { store } = deps;
  const board = new WaitBoard(deps);
  const { acquire: enter } = openHolderLimit({
    ...{ most: projectionWaitsMax, all: projectionWaitsMax },
    ...{ what: "callers that wait for projections", whose: "environment" },
  });
  let isDraining = false;
  const followDeps = { ...deps, board, isDraining: () => isDraining };

  async function waitFor(environmentId: string, request: WaitRequest, options: FollowOptions) {
    for await (const { wait, isOver } of follow(followDeps, environmentId, request, options))
      if (isOver) return resultOf(board, wait, true);
    throw new Error("a wait ended without a result");
  }

  async function wait(
    environmentId: string,
    request: WaitRequest,
    options: CatchupOptions,
  ): Promise<WaitResult> {
    const timeoutMs = timeoutOf(options.timeoutMs, projectionWaitMsMax);
    const leave = enter(environmentId);
    try {
      return await waitFor(environmentId, request, { timeoutMs, signal: options.signal });
    } finally {
      leave();
    }
  }

  return {
    wait,

    /** One item's failure leaves the others alone. */
    async batch(environmentId: string, requests: readonly WaitRequest[], options: CatchupOptions) {
      if (requests.length > projectionWaitItemsMax)
        throw invalid("items", `at most ${projectionWaitItemsMax} in one batch`);
      const timeoutMs = timeoutOf(options.timeoutMs, projectionWaitMsMax);
      const leave = enter(environmentId, requests.length);
      try {
        return await Promise.all(
          requests.map((request) =>
            waitFor(environmentId, request, { timeoutMs, signal: options.signal }).then(
              (result) => ({ result }),
              (error) => {
                if (error instanceof Fault) return { error: error.message };
                throw error;
              },
            ),
          ),
        );
      } finally {
        leave();
      }
    },

    /** The same for the position of an event. */
    async forEvent(
      environmentId: string,
      { eventId, name, partition }: { eventId: string; name: string; partition: string },
      options: CatchupOptions,
    ) {
      if (!(await getProjection(store, { environment_id: environmentId, name })))
        throw unknownProjection(name);
      const event = await findEvent(store, environmentId, eventId);
      if (!event) throw missing("event", eventId);
      return wait(environmentId, { name, minPosition: event.position, partition }, options);
    },

    async *stream(environmentId: string, request: WaitRequest, options: CatchupOptions) {
      const timeoutMs = timeoutOf(options.timeoutMs, projectionWaitStreamMsMax);
      const leave = enter(environmentId);
      try {
        yield* framesOf(
          board,
          follow(followDeps, environmentId, request, { timeoutMs, signal: options.signal }),
          request,
        );
      } finally {
        leave();
      }
    },

    /** Resolves once a read of the projection shows all up to the position; `unavailable` after the time. */
    async reached(
      environmentId: string,
      request: WaitRequest,
      options: { timeoutMs: number; signal: AbortSignal },
    ) {
      const { name, minPosition } = request;
      if (await isRead(store, environmentId, request)) return;
      const leave = enter(environmentId);
      try {
        const result = await waitFor(environmentId, request, options);
        if (result.isCaughtUp) return;
        throw tryAgain(
          "unavailable",
          `projection "${name}" is at ${result.current}, not at ${minPosition} yet`,
        );
      } finally {
        leave();
      }
    },

    /** The tick of loop `projections.waits`: one query for all, for changes whose hint was lost. */
    lookOnce: () => board.lookOnce(),

    /** Answers all waits as they are. */
    drain() {
      isDraining = true;
      for (const { rest } of board.open) rest.wake();
    },

    size: () => board.open.size,
  };
}

function targetOf(environmentId: string, name: string, partition: string): WaitTarget {
  if (!isStorable(name)) throw unknownProjection(name);
  return {
    ...{ environment_id: environmentId, name },
    partition: partition === "" ? undefined : partitionOf("partition", partition),
  };
}

/** Without a wait, as mostly. */
async function isRead(
  store: Store,
  environmentId: string,
  { name, partition, minPosition }: WaitRequest,
): Promise<boolean> {
  const target = targetOf(environmentId, name, partition);
  const found = await progressOf(store, [target]);
  return isFolded(target, found.get(partitionText(target))?.progress ?? "gone", minPosition);
}

interface FollowDeps extends WaitsDeps {
  board: WaitBoard;
  isDraining: () => boolean;
}

/** Yields at each change and at the heartbeat; ends when it is caught up or the time is over. */
async function* follow(
  { clock, signals, board, isDraining }: FollowDeps,
  environmentId: string,
  { name, minPosition, partition }: WaitRequest,
  { timeoutMs, signal }: FollowOptions,
): AsyncGenerator<WaitStep> {
  const of = targetOf(environmentId, name, partition);
  const rest = new Rest();
  const wait: OpenWait = { ...of, target: partitionText(of), min: minPosition, ...gone, rest, signal };
  const until = clock.elapsed() + timeoutMs;
  const unlisten = signals.listen(of, () => board.note(wait));
  const onAbort = () => rest.wake();
  signal.addEventListener("abort", onAbort, { once: true });
  board.open.add(wait);
  try {
    await board.look([wait]);
    if (currentOf(wait, stateOf(wait)) < minPosition && (await board.passOver(of))) await board.look([wait]);
    for (;;) {
      const left = until - clock.elapsed();
      const isCaughtUp = currentOf(wait, stateOf(wait)) >= minPosition;
      const isOver = isCaughtUp || left <= 0 || signal.aborted || isDraining();
      yield { wait, isOver, isBeat: false };
      if (isOver) return;
      const beatAt = clock.elapsed() + projectionHeartbeatMs;
      await rest.for(Math.min(left, projectionHeartbeatMs), clock);
      if (clock.elapsed() >= beatAt) yield { wait, isOver: false, isBeat: true };
    }
  } finally {
    board.open.delete(wait);
    unlisten();
    signal.removeEventListener("abort", onAbort);
  }
}

async function resultOf(board: WaitBoard, wait: OpenWait, isTimedOut: boolean): Promise<WaitResult> {
  const progress = stateOf(wait);
  const current = currentOf(wait, progress);
  const isCaughtUp = current >= wait.min;
  const behind = isCaughtUp || wait.signal.aborted ? 0 : await board.behind(wait, current);
  return {
    ...{ isCaughtUp, isTimedOut: isTimedOut && !isCaughtUp, current, target: wait.min, behind },
    ...{ isRebuilding: progress.isRebuilding, mode: progress.mode },
  };
}

/** A refusal at the beginning is the call's; a later one is told in the last frame. */
async function* framesOf(
  board: WaitBoard,
  steps: AsyncIterable<WaitStep>,
  request: WaitRequest,
): AsyncGenerator<WaitFrame> {
  let current = -1;
  let hasBegun = false;
  try {
    for await (const { wait, isOver, isBeat } of steps) {
      hasBegun = true;
      const result = await resultOf(board, wait, isOver);
      if (isOver) yield { ...result, kind: "done", error: "" };
      else if (isBeat) yield { ...result, kind: "heartbeat", error: "" };
      else if (result.current !== current) yield { ...result, kind: "progress", error: "" };
      current = result.current;
    }
  } catch (error) {
    if (!hasBegun || !(error instanceof Fault)) throw error;
    yield {
      ...{ kind: "done", error: error.message, isCaughtUp: false, isTimedOut: false, isRebuilding: false },
      ...{ current: Math.max(0, current), target: request.minPosition, behind: 0, mode: "" },
    };
  }
}
