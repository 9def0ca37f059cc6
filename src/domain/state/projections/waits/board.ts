import { breather } from "../../../../kit/breather.ts";
import { Fault } from "../../../../kit/fault.ts";
import type { Basics } from "../../../../store/store.ts";
import { eventsBehind } from "../lag.ts";
import { projectionCountersMax, projectionLookMax, projectionPassMax } from "../limits.ts";
import { getHead, getProjection, type ProjectionKey } from "../rows.ts";
import { unknownProjection } from "../rules.ts";
import type { Rest } from "../runners/signals.ts";
import { progressOf, type WaitProgress, type WaitTarget } from "./rows.ts";

/** One caller that waits. */
export interface OpenWait extends WaitTarget {
  /** What it waits for as one text. */
  target: string;
  min: number;
  progress: WaitProgress;
  /** The progress as text, to be compared. */
  text: string;
  rest: Rest;
  /** Aborted when the caller has left. */
  signal: AbortSignal;
}

/** As nothing is known of the projection, or it is deleted. */
export const gone = { progress: "gone", text: "gone" } as const;

/** Throws what ends a wait before its time. */
export function stateOf({ name, partition, progress }: OpenWait): Exclude<WaitProgress, "gone"> {
  if (progress === "gone") throw unknownProjection(name);
  const { status, mode, error, partitionError } = progress;
  if (partition !== undefined && mode !== "managed")
    throw new Fault(
      "failed_precondition",
      `projection "${name}" is ${mode}: it has no partitions to wait for`,
    );
  const stopped = partition === undefined ? status === "error" : partitionError !== null;
  if (stopped)
    throw new Fault(
      "failed_precondition",
      `projection "${name}" is in error: ${partitionError ?? error ?? "a handler failed"}`,
    );
  if (status === "paused" || status === "rebuilding")
    throw new Fault("failed_precondition", `projection "${name}" is ${status}`);
  return progress;
}

/** The position that the wait has seen: all up to it is folded, whatever position was reached before. */
export const currentOf = (
  { partition }: Pick<OpenWait, "partition">,
  progress: Exclude<WaitProgress, "gone">,
): number =>
  partition === undefined ? progress.cursor : Math.max(progress.cursor, progress.partitionPosition);

/** Whether a read shows all up to a position; unlike a wait it may be of a projection that is paused. */
export function isFolded({ name, partition }: WaitTarget, progress: WaitProgress, position: number): boolean {
  if (progress === "gone") throw unknownProjection(name);
  const { status, error, partitionError } = progress;
  const isWhole = partition === undefined ? error === null : partitionError === null;
  return isWhole && status !== "rebuilding" && currentOf({ partition }, progress) >= position;
}

export interface WaitBoardDeps extends Basics<"store" | "clock" | "log"> {
  /** Moves the cursor over events that are none of the projection's. */
  passOver: (key: ProjectionKey) => Promise<boolean>;
}

/** One piece of work for all who ask for it while it is under way. */
function shared<T>(underWay: Map<string, Promise<T>>, text: string, work: () => Promise<T>): Promise<T> {
  const found = underWay.get(text);
  if (found) return found;
  const made = work().finally(() => underWay.delete(text));
  underWay.set(text, made);
  return made;
}

function tell(waits: readonly OpenWait[], { progress, text }: Pick<OpenWait, "progress" | "text">): void {
  for (const wait of waits) {
    if (text !== wait.text) wait.rest.wake();
    wait.progress = progress;
    wait.text = text;
  }
}

/** All waits of a node. One query looks after all whose projections changed. */
export class WaitBoard {
  readonly #deps: WaitBoardDeps;
  readonly open = new Set<OpenWait>();
  /** Waits whose projections changed since the look that is under way. */
  readonly #noted = new Set<OpenWait>();
  #isLooking = false;
  readonly #passing = new Map<string, Promise<boolean>>();
  readonly #counting = new Map<string, Promise<number>>();
  readonly #queue: (() => void)[] = [];
  #counters = 0;

  constructor(deps: WaitBoardDeps) {
    this.#deps = deps;
  }

  /** Moves the cursor for all waits of a projection at once: they come by the thousand. */
  passOver(key: ProjectionKey): Promise<boolean> {
    return shared(this.#passing, `${key.environment_id}\n${key.name}`, () => this.#deps.passOver(key));
  }

  /** How many events of its projection a wait still misses; those that are alike count once. */
  behind({ environment_id, name, min }: OpenWait, current: number): Promise<number> {
    const text = JSON.stringify([environment_id, name, min, current]);
    return shared(this.#counting, text, async () => {
      const { store, clock } = this.#deps;
      const giveBack = await this.#turn();
      try {
        const row = await getProjection(store, { environment_id, name });
        const head = row && (await getHead(store, environment_id));
        const last = Math.min(min, head?.position ?? 0);
        return row ? await eventsBehind({ store, clock }, row, { after: current, last }) : 0;
      } finally {
        giveBack();
      }
    });
  }

  /** Few count at once: thousands of waits may be over in one moment. */
  async #turn(): Promise<() => void> {
    while (this.#counters >= projectionCountersMax)
      await new Promise<void>((resolve) => this.#queue.push(resolve));
    this.#counters++;
    return () => {
      this.#counters--;
      this.#queue.shift()?.();
    };
  }

  /** Reads how far the projections of these waits are; the waits that changed wake. */
  async look(waits: readonly OpenWait[]): Promise<void> {
    const breathe = breather(this.#deps.clock, "waits");
    const alike = new Map<string, OpenWait[]>();
    for (const wait of waits) {
      const found = alike.get(wait.target);
      if (found) found.push(wait);
      else alike.set(wait.target, [wait]);
    }
    const targets = [...alike.values()];
    for (let from = 0; from < targets.length; from += projectionLookMax) {
      const slice = targets.slice(from, from + projectionLookMax);
      const found = await progressOf(
        this.#deps.store,
        slice.map(([first]) => first!),
      );
      for (const all of slice) tell(all, found.get(all[0]!.target) ?? gone);
      await breathe();
    }
  }

  /** The projection of this wait may have changed. */
  note(wait: OpenWait): void {
    this.#noted.add(wait);
    if (this.#isLooking) return;
    this.#isLooking = true;
    queueMicrotask(() => void this.#lookAfterNoted());
  }

  async lookOnce(): Promise<void> {
    const waits = [...this.open];
    if (waits.length === 0) return;
    await this.look(waits);
    const late = new Map<string, ProjectionKey>();
    for (const wait of waits) {
      const { progress, min, name, environment_id } = wait;
      if (progress !== "gone" && currentOf(wait, progress) < min && late.size < projectionPassMax)
        late.set(`${environment_id}\n${name}`, { environment_id, name });
    }
    let hasMoved = false;
    for (const key of late.values()) hasMoved = (await this.passOver(key).catch(() => false)) || hasMoved;
    if (hasMoved) await this.look(waits.filter((one) => this.open.has(one)));
  }

  async #lookAfterNoted(): Promise<void> {
    try {
      while (this.#noted.size > 0) {
        const waits = [...this.#noted].filter((one) => this.open.has(one));
        this.#noted.clear();
        await this.look(waits);
      }
    } catch (error) {
      // The next tick of the loop looks again.
      this.#deps.log.debug("projections.look_failed", { error });
    } finally {
      this.#isLooking = false;
    }
  }
}
