import { breather } from "../../../../kit/breather.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { Fault } from "../../../../kit/fault.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Basics, Store } from "../../../../store/store.ts";
import { eventsBehind } from "../event-rows.ts";
import { projectionCountersMax, projectionLookMax, projectionPassMax } from "../limits.ts";
import { getHead, getProjection, type ProjectionKey } from "../rows.ts";
import { type ProjectionMode, type ProjectionStatus, unknownProjection } from "../rules.ts";
import type { Rest } from "../runners/signals.ts";

export interface WaitTarget extends ProjectionKey {
  /** Undefined: the whole projection. */
  partition: string | undefined;
}

/** How far a projection, and one of its partitions, is; `gone` once it is deleted. */
type WaitProgress =
  | "gone"
  | {
      status: ProjectionStatus;
      mode: ProjectionMode;
      error: string | null;
      cursor: number;
      isRebuilding: boolean;
      /** 0 where the partition has no row. */
      partitionPosition: number;
      partitionError: string | null;
    };

interface ProgressRow extends ProjectionKey {
  partition_key: string;
  status: ProjectionStatus;
  mode: ProjectionMode;
  error_message: string | null;
  cursor_position: number;
  building: number;
  last_position: number | null;
  partition_error: string | null;
}

/** Empty is no key of a partition: it means the global one in requests. */
const noPartition = "";

export const partitionText = ({ environment_id, name, partition = noPartition }: WaitTarget): string =>
  JSON.stringify([environment_id, name, partition]);

/** By the text of the target; at most `projectionLookMax` at once. Deleted projections are left out. */
export async function progressOf(
  store: Pick<Store, "all" | "seams">,
  targets: readonly WaitTarget[],
): Promise<Map<string, { progress: WaitProgress; text: string }>> {
  const found = new Map<string, { progress: WaitProgress; text: string }>();
  const rows =
    await store.all<ProgressRow>(sql`SELECT p.environment_id, p.name, i.partition_key, p.status, p.mode,
        p.error_message, g.cursor_position, s.last_position, s.error_message AS partition_error,
        (SELECT count(*) FROM projection_generations b WHERE b.environment_id = p.environment_id
          AND b.name = p.name AND b.generation > p.generation AND b.dropped_at IS NULL) AS building
      FROM ${store.seams.rowsFrom("i", {
        ...columnsOf(targets, { text: "environment_id name" }),
        partition_key: column.text(targets.map((one) => one.partition ?? noPartition)),
      })}
        CROSS JOIN projections p
        JOIN projection_generations g ON g.environment_id = p.environment_id AND g.name = p.name
          AND g.generation = p.generation
        LEFT JOIN projection_states s ON s.environment_id = p.environment_id AND s.name = p.name
          AND s.generation = p.generation AND s.partition_key = i.partition_key
      WHERE p.environment_id = i.environment_id AND p.name = i.name`);
  for (const row of rows) {
    const progress: WaitProgress = {
      ...{ status: row.status, mode: row.mode, error: row.error_message },
      ...{ cursor: row.cursor_position, isRebuilding: row.building > 0 },
      ...{ partitionPosition: row.last_position ?? 0, partitionError: row.partition_error },
    };
    const text = JSON.stringify(progress);
    found.set(partitionText({ ...row, partition: row.partition_key }), { progress, text });
  }
  return found;
}

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
