import type { Instant } from "../../../../kit/clock.ts";
import { Fault, invalid } from "../../../../kit/fault.ts";
import type { Basics, Session } from "../../../../store/store.ts";
import { advance, clearError, takeErrorOf } from "../advance.ts";
import { type ChangeBy, noteChange } from "../changes.ts";
import {
  dropGeneration,
  type GenerationRow,
  getGenerations,
  getProjection,
  type HeldProjection,
  holdProjection,
  insertGeneration,
  lastGeneration,
  newGeneration,
  type ProjectionKey,
  type ProjectionRow,
  updateDefinition,
  updateGeneration,
  updateProjection,
} from "../rows.ts";
import {
  type DefinitionInput,
  definitionOf,
  moves,
  type ProjectionDefinition,
  type ProjectionStatus,
  partitionOf,
  unknownProjection,
  wrongStatus,
} from "../rules.ts";
import { endLease } from "../runners/leases.ts";
import { type ProjectionChange, readGeneration } from "../service.ts";
import { clearPending, deleteState } from "../state-rows.ts";
import {
  cancelRebuild,
  completeRebuild,
  getRebuild,
  putRebuild,
  type RebuildRow,
  type RebuildStrategy,
  reportRebuild,
  strategies,
} from "./rows.ts";
import { type RebuildScope, scopeOf } from "./scope.ts";

export interface RebuildRequest {
  name: string;
  /** Empty: all. */
  partition: string;
  fromEventId: string;
  toEventId: string;
  isDryRun: boolean;
  strategy: string;
  /** Registered in the same transaction. */
  definition?: Omit<DefinitionInput, "name"> | undefined;
  actorId: string;
}

export interface RebuildReport {
  name: string;
  processed: number;
  total: number;
  isCompleted: boolean;
}

export interface RebuildView extends RebuildRow {
  /** From 0 to 1. */
  progress: number;
  /** Undefined while nothing tells it. */
  remainingMs: number | undefined;
  isDryRun: boolean;
}

/** Folding a projection again: in place of what is read, or beside it. */
export type Rebuilds = ReturnType<typeof openRebuilds>;

export interface RebuildsDeps extends Basics<"store" | "clock" | "ids"> {
  onChanged: (change: ProjectionChange) => void;
}

const underWay = (name: string): Fault =>
  new Fault("failed_precondition", `projection "${name}" is being rebuilt: cancel that first`);

export function openRebuilds({ store, clock, ids, onChanged }: RebuildsDeps) {
  return {
    async start(environmentId: string, request: RebuildRequest): Promise<RebuildView> {
      const { name, isDryRun, actorId } = request;
      const key = { environment_id: environmentId, name };
      const definition = request.definition && definitionOf({ ...request.definition, name });
      const row = changedBy(definition, await getProjection(store, key));
      if (!row) throw unknownProjection(name);
      const strategy = strategyOf(request.strategy);
      const partition = request.partition === "" ? null : partitionOf("partition", request.partition);
      if (partition !== null && (row.mode !== "managed" || strategy === "side_by_side"))
        throw new Fault(
          "failed_precondition",
          "partition: one partition is rebuilt in place, and only of a managed projection",
          { field: "partition" },
        );
      if (partition !== null && definition)
        throw invalid("definition", "must be left out where one partition is rebuilt");
      const scope = await scopeOf({ store, clock }, row, request);
      const job: RebuildRow = {
        ...{ ...key, ...newJob(request, scope), id: ids.next("rebuild"), started_at: clock.now() },
        ...{ strategy, generation: row.generation, partition_key: partition },
      };
      if (isDryRun) {
        if (row.status === "rebuilding") throw underWay(name);
        return viewOf(job, { cursor: scope.after, now: clock.now(), isDryRun });
      }
      const started = await store.write((session) =>
        begin(session, key, { scope, job, definition, by: { actorId, ids, now: clock.now() } }),
      );
      onChanged({ key, kind: "transition" });
      return viewOf(started, { cursor: scope.after, now: clock.now(), isDryRun });
    },

    /** The last one. */
    async get(environmentId: string, name: string): Promise<RebuildView> {
      const key = { environment_id: environmentId, name };
      if (!(await getProjection(store, key))) throw unknownProjection(name);
      const job = await getRebuild(store, key);
      if (!job) throw new Fault("not_found", `projection "${name}" was never rebuilt`);
      const generations = await getGenerations(store, key);
      const own = generations.find((one) => one.generation === job.generation);
      return viewOf(job, {
        cursor: own?.cursor_position ?? job.start_position,
        now: clock.now(),
        isDryRun: false,
      });
    },

    async cancel(environmentId: string, name: string): Promise<ProjectionStatus> {
      const key = { environment_id: environmentId, name };
      const status = await store.write(async (session) => {
        const held = await holdProjection(session, key);
        if (!held) throw unknownProjection(name);
        const now = clock.now();
        const building = held.generations.find((one) => one.target !== null);
        if (!building) throw new Fault("failed_precondition", `projection "${name}" is not being rebuilt`);
        await cancelRebuild(session, building, now);
        if (building.generation === held.generation) {
          // What is folded stays, and the runner goes on from there.
          await updateGeneration(session, { ...building, target: null, return_to: null });
          if (held.status === "rebuilding") held.status = "running";
        } else await dropGeneration(session, building, now);
        held.updated_at = now;
        await updateProjection(session, held);
        return held.status;
      });
      onChanged({ key, kind: "transition" });
      return status;
    },

    /** From a runner that rebuilds by means of its own. */
    async report(environmentId: string, { name, processed, total, isCompleted }: RebuildReport) {
      const key = { environment_id: environmentId, name };
      if (processed < 0) throw invalid("events_processed", "must not be negative");
      if (total < 0) throw invalid("total_events", "must not be negative");
      await store.write(async (session) => {
        const held = await holdProjection(session, key);
        if (!held) throw unknownProjection(name);
        const building = held.generations.find((one) => one.target !== null);
        if (!building) throw new Fault("failed_precondition", `projection "${name}" is not being rebuilt`);
        await reportRebuild(session, building, { processed, total });
        if (!isCompleted) return;
        await finishReported(session, held, building, clock.now());
      });
      onChanged({ key, kind: isCompleted ? "transition" : "move" });
    },
  };
}

const newJob = ({ fromEventId, toEventId }: RebuildRequest, scope: RebuildScope) => ({
  ...{ status: "running" as const, from_event_id: fromEventId || null, to_event_id: toEventId || null },
  ...{ start_position: scope.after, target: scope.target, total_count: scope.total },
  ...{ processed_count: 0, ended_at: null, error: null },
});

/** As a definition has it, if one is given. */
function changedBy<Row extends ProjectionRow>(
  definition: ProjectionDefinition | undefined,
  row: Row | undefined,
): Row | undefined {
  if (!row || !definition) return row;
  const { mode, events, partitionPath, version } = definition;
  return { ...row, mode, events: JSON.stringify(events), partition_path: partitionPath, version };
}

/** Under the lock of the projection, which must be free for it. */
async function begin(
  session: Session,
  key: ProjectionKey,
  {
    scope,
    job,
    definition,
    by,
  }: { scope: RebuildScope; job: RebuildRow; definition: ProjectionDefinition | undefined; by: ChangeBy },
): Promise<RebuildRow> {
  const held = changedBy(definition, await holdProjection(session, key));
  if (!held) throw unknownProjection(key.name);
  requireFree(held);
  const { now } = by;
  if (definition) {
    await updateDefinition(session, key, definition, now);
    await noteChange(session, key, "update", by);
  }
  const generation =
    job.partition_key !== null
      ? await beginPartition(session, held, { scope, partition: job.partition_key, now })
      : await beginGeneration(session, held, { scope, strategy: job.strategy, definition, now });
  const started = { ...job, generation, started_at: now };
  await putRebuild(session, started);
  if (scope.total > 0) return started;
  // Nothing to fold: no runner has to come for it.
  const again = (await holdProjection(session, key))!;
  const fresh = again.generations.find((one) => one.generation === generation)!;
  fresh.delivered = Math.max(fresh.delivered, scope.target);
  const { isRebuilt } = await advance(session, again, fresh, { now });
  return isRebuilt ? { ...started, status: "completed" } : started;
}

/** A runner says that it has handled everything up to the target by itself. */
async function finishReported(
  session: Session,
  held: HeldProjection,
  building: GenerationRow,
  now: Instant,
): Promise<void> {
  if (building.generation !== held.generation)
    throw new Fault("failed_precondition", "a rebuild beside ends by its saves");
  if (held.mode !== "external")
    throw new Fault("failed_precondition", "the rebuild of a managed projection ends by its saves");
  const upTo = Math.max(building.target ?? 0, building.return_to ?? 0, building.cursor_position);
  await clearPending(session, building);
  await completeRebuild(session, building, now);
  await updateGeneration(session, {
    ...building,
    ...{ cursor_position: upTo, position: Math.max(building.position, upTo), delivered: upTo },
    ...{ target: null, return_to: null },
  });
  if (held.status === "rebuilding") held.status = "running";
  held.updated_at = now;
  await updateProjection(session, held);
}

function requireFree(held: HeldProjection): void {
  if (held.generations.some(({ target }) => target !== null) || held.status === "rebuilding")
    throw underWay(held.name);
  if (!(moves.rebuild.from as readonly string[]).includes(held.status))
    throw wrongStatus("rebuild", held.name, held.status);
}

async function beginGeneration(
  session: Session,
  held: HeldProjection,
  {
    scope,
    strategy,
    definition,
    now,
  }: {
    scope: RebuildScope;
    strategy: RebuildStrategy;
    definition: ProjectionDefinition | undefined;
    now: Instant;
  },
): Promise<number> {
  const { environment_id, name } = held;
  const generation = (await lastGeneration(session, held)) + 1;
  const read = readGeneration(held);
  const isRecording = definition?.isRecording ?? read.recorded_since !== null;
  const fresh = newGeneration(
    { environment_id, name, generation },
    { after: scope.after, version: held.version, isRecording, now },
  );
  fresh.target = Math.max(scope.target, scope.after);
  if (strategy === "in_place") {
    // Events behind the target were handled before: an external projection does not repeat them.
    if (held.mode === "external" && read.position > scope.target) fresh.return_to = read.position;
    endLease(held, read, now);
    fresh.holder = read.holder;
    fresh.saved_at = now;
    fresh.fence = read.fence;
    fresh.asked_at = read.asked_at;
    await dropGeneration(session, read, now);
    clearError(held);
    held.generation = generation;
    held.status = moves.rebuild.to;
    held.updated_at = now;
    await updateProjection(session, held);
  }
  await insertGeneration(session, fresh);
  return generation;
}

/** The state of one partition goes, and the cursor back: all others know what they have folded. */
async function beginPartition(
  session: Session,
  held: HeldProjection,
  { scope, partition, now }: { scope: RebuildScope; partition: string; now: Instant },
): Promise<number> {
  const read = readGeneration(held);
  await deleteState(session, read, partition);
  await clearPending(session, read);
  endLease(held, read, now);
  const after = Math.min(read.cursor_position, scope.after);
  await updateGeneration(session, {
    ...read,
    ...{
      cursor_position: after,
      delivered: after,
      offered: after,
      target: Math.max(after, Math.min(scope.target, read.position)),
    },
  });
  // Others that have stopped stay so: to begin again they would need events from before the cursor.
  await takeErrorOf(session, held, read);
  held.status = moves.rebuild.to;
  held.updated_at = now;
  await updateProjection(session, held);
  return read.generation;
}

function strategyOf(word: string): RebuildStrategy {
  if (word === "") return "in_place";
  const found = strategies.find((strategy) => strategy === word);
  if (!found) throw invalid("strategy", `must be one of ${strategies.join(", ")}`);
  return found;
}

function viewOf(
  job: RebuildRow,
  { cursor, now, isDryRun }: { cursor: number; now: Instant; isDryRun: boolean },
): RebuildView {
  const { start_position: start, target, status, started_at: startedAt } = job;
  const whole = Math.max(1, target - start);
  const done = Math.max(0, Math.min(target, cursor) - start);
  const progress = status === "completed" ? 1 : isDryRun ? 0 : target <= start ? 1 : done / whole;
  const isMoving = status === "running" && !isDryRun && done > 0;
  const remainingMs = isMoving ? Math.round(((now - startedAt) / done) * (whole - done)) : undefined;
  return { ...job, progress, remainingMs, isDryRun };
}
