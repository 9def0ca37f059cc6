import { Fault } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import type { Store } from "../../../store/store.ts";
import { projectionPassMax } from "./limits.ts";
import type { ProjectionKey } from "./rows.ts";
import { unknownProjection } from "./rules.ts";
import type { Rest } from "./signals.ts";
import { partitionText, progressOf, type WaitProgress, type WaitTarget } from "./wait-rows.ts";

/** One caller that waits. */
export interface OpenWait extends WaitTarget {
  min: number;
  progress: WaitProgress;
  /** The progress as text, to be compared. */
  text: string;
  rest: Rest;
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

/** The position that the wait has seen. */
export const currentOf = ({ partition }: OpenWait, progress: Exclude<WaitProgress, "gone">): number =>
  partition === undefined ? progress.position : Math.max(progress.cursor, progress.partitionPosition);

export interface WaitBoardDeps {
  store: Store;
  log: Log;
  /** Moves the cursor over events that are none of the projection's. */
  passOver: (key: ProjectionKey) => Promise<boolean>;
}

/** All waits of a node. One query looks after all whose projections changed. */
export class WaitBoard {
  readonly #deps: WaitBoardDeps;
  readonly open = new Set<OpenWait>();
  /** Waits whose projections changed since the look that is under way. */
  readonly #noted = new Set<OpenWait>();
  #isLooking = false;

  constructor(deps: WaitBoardDeps) {
    this.#deps = deps;
  }

  /** Reads how far the projections of these waits are; the waits that changed wake. */
  async look(waits: readonly OpenWait[]): Promise<void> {
    const found = await progressOf(this.#deps.store, waits);
    for (const wait of waits) {
      const { progress, text } = found.get(partitionText(wait)) ?? gone;
      if (text !== wait.text) wait.rest.wake();
      wait.progress = progress;
      wait.text = text;
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
    for (const key of late.values())
      hasMoved = (await this.#deps.passOver(key).catch(() => false)) || hasMoved;
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
