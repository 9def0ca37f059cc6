import { rfc3339 } from "../../../../kit/clock.ts";
import { valueAt } from "../../../../kit/data-path.ts";
import { matchesPattern } from "../../../../kit/event-names.ts";
import type {
  EnvironmentDatabases,
  FoldSlice,
  FoldStep,
  StepValue,
} from "../../../../store/environment-databases.ts";
import type { Basics, Session } from "../../../../store/store.ts";
import { advance } from "../advance.ts";
import type { EventBatch, EventBatches } from "../batches.ts";
import type { FeedEvent } from "../event-rows.ts";
import { FoldSizes } from "../fold-sizes.ts";
import {
  foldEventsMax,
  foldLeaseMs,
  foldStrideMs,
  foldsAtOnceMax,
  foldsMax,
  foldTurnMs,
  projectionErrorCharsMax,
} from "../limits.ts";
import { failRebuild } from "../rebuilds/rows.ts";
import {
  dropGeneration,
  type GenerationRow,
  type HeldProjection,
  holdProjection,
  serverHolder,
  updateProjection,
} from "../rows.ts";
import { isFed, takeLease } from "../runners/leases.ts";
import type { ProjectionChange } from "../service.ts";
import { stopBelowFloor } from "../sweep.ts";
import { type AdmittedProjection, type DueFold, dueFolds, getSqlProjection, releaseFolds } from "./rows.ts";
import { foldTableOf } from "./service.ts";

export interface SqlFoldDeps extends Basics<"store" | "clock" | "log" | "nodeId"> {
  databases: EnvironmentDatabases;
  batches: EventBatches;
  onChanged: (change: ProjectionChange) => void;
  onFolded: (events: number) => void;
}

/** One projection in the hands of this node. */
interface Folding {
  held: HeldProjection;
  generation: GenerationRow;
  admitted: AdmittedProjection;
  tableName: string;
  /** Nothing was folded yet: its table may be missing. */
  isNew: boolean;
}

/** What stands for the stream of a generation once its table was there. */
const tableMade = "table";

/** A restore may leave the databases of environments out. */
const tableGone = "its table is gone: rebuild the projection";

/** Folds the projections of mode `sql`, each at one node at a time, a slice of events a transaction. */
export class SqlFolds {
  readonly #deps: SqlFoldDeps;
  readonly #holder: string;
  readonly #sizes: FoldSizes;

  constructor(deps: SqlFoldDeps) {
    this.#deps = deps;
    this.#sizes = new FoldSizes(deps.clock);
    // Alone with its store, a server that was killed continues where it was.
    this.#holder = deps.store.isShared ? `${serverHolder}${deps.nodeId}` : serverHolder;
  }

  /** The tick of loop `projections.fold`: a turn for each projection that has events after its cursor. */
  async foldOnce(): Promise<{ againInMs?: number } | void> {
    const { store, clock, log } = this.#deps;
    const due = await dueFolds(store, { holder: this.#holder, now: clock.now(), limit: foldsMax });
    let isLeft = false;
    for (let from = 0; from < due.length; from += foldsAtOnceMax) {
      const turns = due.slice(from, from + foldsAtOnceMax).map((one) =>
        this.foldTurn(one).catch(async (error) => {
          // What is stored of it is unreadable: it stops, with the reason, until it is resumed or deleted.
          if (error instanceof SyntaxError)
            await this.#stop(one, { eventId: "", position: 0, message: error.message }).catch(() => {});
          // The others continue; this one is tried again with the next tick.
          log.warn("projections.fold_failed", { environmentId: one.environment_id, name: one.name, error });
          return false;
        }),
      );
      isLeft = (await Promise.all(turns)).includes(true) || isLeft;
    }
    return isLeft ? { againInMs: 0 } : undefined;
  }

  /** This node stops: another one need not wait for its leases to end. */
  async release(): Promise<void> {
    const { store, clock } = this.#deps;
    await store.write((session) => releaseFolds(session, { holder: this.#holder, now: clock.now() }));
  }

  /** Folds one generation for a while. Answers whether events are left. */
  async foldTurn(due: DueFold): Promise<boolean> {
    const { clock, databases } = this.#deps;
    const until = clock.elapsed() + foldTurnMs;
    let folding = await this.#take(due);
    if (!folding) return false;
    const table = foldTableOf(due, folding.tableName);
    const { generation: own } = folding;
    const found = await databases.ensure(
      table,
      folding.admitted,
      folding.isNew ? own.cursor_position : undefined,
    );
    if (found === undefined) {
      await this.#stop(due, { eventId: "", position: 0, message: tableGone });
      return false;
    }
    let at = found;
    if (due.generation === folding.held.generation) await databases.show(table);
    while (folding) {
      const { held: row, generation }: Folding = folding;
      const after = Math.max(at, generation.cursor_position);
      const batch: EventBatch = await this.#deps.batches.read({
        ...{ row, generation, after, limit: this.#sizes.of(generation), partition: undefined },
      });
      if (batch.floor !== undefined) {
        await stopBelowFloor(this.#deps, row, batch.floor);
        return false;
      }
      const isStill = generation.target === null && batch.events.length === 0;
      if (isStill && !this.#isWorthMoving(generation, batch.reached)) return false;
      const folded = await this.#fold(folding, at, batch, until);
      if (folded === undefined) return true;
      at = folded.at;
      folding = await this.#moved(folding, { upTo: folded.upTo, count: folded.count });
      if (folded.failure) {
        await this.#stop(due, folded.failure);
        return false;
      }
      if (batch.events.length === 0 && batch.reached <= after) return false;
      if (clock.elapsed() >= until) return folding !== undefined;
    }
    return false;
  }

  /** A cursor that passes over what is none of the projection's does so in strides: each is a commit. */
  #isWorthMoving({ cursor_position: cursor, saved_at: savedAt }: GenerationRow, reached: number): boolean {
    if (reached <= cursor) return false;
    return reached - cursor >= foldEventsMax || this.#deps.clock.now() - savedAt >= foldStrideMs;
  }

  /** The lease; undefined where another node has it, or there is nothing to fold. */
  #take({ generation: wanted, ...key }: DueFold): Promise<Folding | undefined> {
    const { store, clock } = this.#deps;
    return store.write(async (session) => {
      const held = await holdProjection(session, key);
      const generation = held?.generations.find((one) => one.generation === wanted);
      const row = held && (await getSqlProjection(session, key));
      if (!held || !generation || !row || !isFed(held)) return undefined;
      const now = clock.now();
      const isNew = generation.stream_id !== tableMade;
      if (generation.holder !== this.#holder && generation.lease_until > now) return undefined;
      if (generation.holder !== this.#holder || generation.lease_until - now < foldLeaseMs / 2) {
        this.#renew(generation);
        await advance(session, held, generation, { now });
      }
      const admitted = JSON.parse(row.admitted) as AdmittedProjection;
      return { held, generation, admitted, tableName: row.table_name, isNew };
    });
  }

  #renew(generation: GenerationRow): void {
    const runner = { holder: this.#holder, isNamed: true, fence: 0, generation: 0 };
    const now = this.#deps.clock.now();
    takeLease(generation, runner, { streamId: generation.stream_id, now, hasWork: false });
    generation.lease_until = now + foldLeaseMs;
  }

  /**
   * Folds a batch, or its part before the first event that fails, or as much as the last slices had time for.
   * Undefined if another node has folded meanwhile, or the turn is over before a part was small enough.
   */
  async #fold(
    { held, generation, admitted, tableName }: Folding,
    at: number,
    { events, reached }: EventBatch,
    until: number,
  ): Promise<{ at: number; upTo: number; count: number; failure?: StatementFailure } | undefined> {
    const { databases } = this.#deps;
    const table = foldTableOf(generation, tableName);
    let steps = stepsOf(admitted, events);
    let upTo = reached;
    let failure: StatementFailure | undefined;
    const cutTo = (count: number) => {
      upTo = steps[count]!.position - 1;
      steps = steps.slice(0, count);
    };
    const fitting = this.#sizes.of(generation);
    if (steps.length > fitting) cutTo(fitting);
    while (steps.length > 0) {
      const slice: FoldSlice = { from: at, to: upTo, steps };
      const outcome = await this.#sizes.timed(generation, steps.length, () =>
        databases.fold(table, slice, admitted),
      );
      if (outcome.did === "folded")
        return { at: upTo, upTo, count: steps.length, ...(failure && { failure }) };
      if (outcome.did === "nothing") return undefined;
      const { position, message } = outcome;
      const isOne = steps.length === 1;
      if (position > 0 || isOne) {
        const failed = position > 0 ? position : steps[0]!.position;
        const event = events.find((one) => one.position === failed)!;
        failure = { eventId: event.id, position: failed, message };
        upTo = failed - 1;
        steps = steps.filter((step) => step.position < failed);
      } else {
        // The database does not say which one: half as many are tried.
        cutTo(Math.ceil(steps.length / 2));
        failure = undefined;
        // Other projections wait for the end of the turn; the next one begins with this size.
        if (this.#deps.clock.elapsed() >= until) return undefined;
      }
    }
    const isRead = generation.generation === held.generation;
    if (isRead && failure) return { at, upTo, count: 0, failure };
    return { at, upTo, count: 0, ...(failure && { failure }) };
  }

  /** The cursor that everybody else reads. Undefined when the generation is not this node's any more. */
  async #moved(
    folding: Folding,
    { upTo, count }: { upTo: number; count: number },
  ): Promise<Folding | undefined> {
    const { store, clock, databases, onChanged, onFolded } = this.#deps;
    const { environment_id, name, generation: wanted } = folding.generation;
    const key = { environment_id, name };
    const moved = await store.write(async (session: Session) => {
      const held = await holdProjection(session, key);
      const generation = held?.generations.find((one) => one.generation === wanted);
      if (!held || !generation) return undefined;
      const now = clock.now();
      generation.stream_id = tableMade;
      generation.delivered = Math.max(generation.delivered, upTo);
      generation.offered = Math.max(generation.offered, upTo);
      generation.saved_at = Math.max(now, generation.saved_at + 1);
      if (generation.holder === this.#holder) this.#renew(generation);
      const advanced = await advance(session, held, generation, { now, processed: count });
      return { held, generation, advanced };
    });
    if (!moved) return undefined;
    const { held, generation, advanced } = moved;
    onFolded(count);
    if (advanced.isRebuilt && held.generation === wanted)
      await databases.show(foldTableOf(generation, folding.tableName));
    if (advanced.hasMoved) onChanged({ key, kind: advanced.isRebuilt ? "transition" : "move" });
    if (!isFed(held) || generation.holder !== this.#holder) return undefined;
    return { ...folding, held, generation };
  }

  /** The projection stops before the event; a generation beside the one that is read is given up. */
  async #stop({ generation: wanted, ...key }: DueFold, failure: StatementFailure): Promise<void> {
    const { store, clock, onChanged } = this.#deps;
    await store.write(async (session) => {
      const held = await holdProjection(session, key);
      const generation = held?.generations.find((one) => one.generation === wanted);
      if (!held || !generation) return;
      const now = clock.now();
      const message = failure.message.slice(0, projectionErrorCharsMax).toWellFormed().replaceAll("\0", " ");
      if (wanted !== held.generation) {
        await failRebuild(session, generation, { message, now });
        await dropGeneration(session, generation, now);
        return;
      }
      held.status = "error";
      held.error_message = message;
      held.error_event_id = failure.eventId || null;
      held.error_position = failure.position || null;
      held.error_partition = null;
      held.updated_at = now;
      await updateProjection(session, held);
    });
    onChanged({ key, kind: "transition" });
  }
}

interface StatementFailure {
  eventId: string;
  position: number;
  message: string;
}

/** What the handlers of a projection do to these events; one without a handler is passed over. */
function stepsOf({ sources }: AdmittedProjection, events: readonly FeedEvent[]): FoldStep[] {
  const literal = new Map(sources.map(({ event }, place) => [event, place]));
  const handlerOf = (name: string): number =>
    literal.get(name) ?? sources.findIndex(({ event }) => /[*>]/.test(event) && matchesPattern(event, name));
  return events.flatMap((event) => {
    const handler = handlerOf(event.name);
    if (handler < 0) return [];
    const { paths } = sources[handler]!;
    const data = paths.some((path) => path.startsWith("data"))
      ? (JSON.parse(event.data) as unknown)
      : undefined;
    return [
      { handler, position: event.position, values: paths.map((path) => parameterOf(path, event, data)) },
    ];
  });
}

function parameterOf(path: string, event: FeedEvent, data: unknown): StepValue {
  switch (path) {
    case "entity_id":
      return event.entity_id;
    case "timestamp":
      return rfc3339(event.at);
    case "event_id":
      return event.id;
    case "event_name":
      return event.name;
    case "sequence":
      return event.position;
    case "data":
      return event.data;
    default:
      return scalarOf(valueAt(data, path));
  }
}

/** A list or an object is its JSON text. */
function scalarOf(value: unknown): StepValue {
  if (value === undefined || value === null) return null;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return value;
  return JSON.stringify(value);
}
