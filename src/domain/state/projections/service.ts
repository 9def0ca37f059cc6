import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { searchBytesMax } from "../../../kit/limits.ts";
import { pageOffset, pageSize } from "../../../kit/page.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import { clearError, noError } from "./advance.ts";
import { noteChange, projectionHistory } from "./changes.ts";
import { eventsBehind, findEvent, type SteppedReads } from "./event-rows.ts";
import { partitionsDefault, partitionsMax, projectionsMax } from "./limits.ts";
import { getRebuild, type RebuildRow } from "./rebuilds/rows.ts";
import {
  carryOn,
  countListed,
  countProjections,
  deleteProjection,
  type GenerationRow,
  getHead,
  getProjection,
  type HeldProjection,
  holdProjection,
  insertGeneration,
  insertProjection,
  type ListedProjection,
  lastGeneration,
  listProjections,
  newGeneration,
  type ProjectionKey,
  readProjection,
  serverHolder,
  shareHead,
  updateDefinition,
  updateGeneration,
  updateProjection,
} from "./rows.ts";
import {
  type DefinitionInput,
  definitionOf,
  modeOf,
  moves,
  type ProjectionDefinition,
  type ProjectionStatus,
  partitionOf,
  statusOf,
  unknownProjection,
  wrongStatus,
} from "./rules.ts";
import { endLease, touch } from "./runners/leases.ts";
import { getSqlProjection, type SqlProjectionRow, sqlProjectionsOf } from "./sql/rows.ts";
import {
  clearErrors,
  clearPending,
  firstStopped,
  firstUnsaved,
  getState,
  listPartitions,
  type StateRow,
  skipEvent,
  stateAt,
} from "./state-rows.ts";

export type { ProjectionRevision } from "./changes.ts";
export type { GenerationRow, HeldProjection, ListedProjection, ProjectionKey } from "./rows.ts";
export type { SqlProjectionRow } from "./sql/rows.ts";
export type { StateRow } from "./state-rows.ts";

export interface ListProjectionsQuery {
  status: string | undefined;
  mode: string | undefined;
  limit: number | undefined;
  offset: number | undefined;
}

export interface ReadProjection {
  held: HeldProjection;
  generation: GenerationRow;
  partition: string;
  /** Undefined where nothing was folded. */
  state: StateRow | undefined;
  /** Of one that is folded by SQL. */
  made: SqlProjectionRow | undefined;
}

/** A row of a list. */
export interface ShownProjection extends ListedProjection {
  made?: SqlProjectionRow | undefined;
}

export interface ProjectionStanding {
  held: HeldProjection;
  generation: GenerationRow;
  /** The generation that a rebuild folds beside the one that is read. */
  building: GenerationRow | undefined;
  /** Undefined when it could not be read. */
  lag: number | undefined;
  /** The one under way. */
  rebuild: RebuildRow | undefined;
}

/** What changed of a projection, after its commit. */
export interface ProjectionChange {
  key: ProjectionKey;
  /**
   * `transition`: the status, an error or a rebuild, told to subscribers at once; `move`: the position, told
   * now and then; `other`: nothing that subscribers hear of.
   */
  kind: "transition" | "move" | "other";
}

export interface ReadInput {
  partition?: string | undefined;
  generation?: number | undefined;
  asOf?: Instant | undefined;
}

export interface PartitionsInput {
  search: string;
  limit: number | undefined;
}

/** Registered read models, and what their owners do with them. */
export type Projections = ReturnType<typeof openProjections>;

export interface ProjectionsDeps extends Basics<"store" | "clock" | "ids"> {
  /** Called after the commit. */
  onChanged: (change: ProjectionChange) => void;
  /** Drops the tables of deleted generations; loop `projections.sweep` repeats what fails. */
  onTablesLeft: (generations: readonly GenerationRow[]) => Promise<void>;
}

const keyOf = (environmentId: string, name: string): ProjectionKey => ({
  environment_id: environmentId,
  name,
});

export function openProjections({ store, clock, ids, onChanged, onTablesLeft }: ProjectionsDeps) {
  /** `work` answers whether it changed anything. */
  async function change(
    environmentId: string,
    name: string,
    actorId: string,
    work: (session: Session, held: HeldProjection, now: Instant) => Promise<boolean>,
  ): Promise<ProjectionStatus> {
    const key = keyOf(environmentId, name);
    const { status, isChanged } = await store.write(async (session) => {
      const held = await holdProjection(session, key);
      if (!held) throw unknownProjection(name);
      const done = await work(session, held, clock.now());
      await noteChange(session, key, "status_change", { actorId, ids, now: clock.now() });
      return { status: held.status, isChanged: done };
    });
    if (isChanged) onChanged({ key, kind: "transition" });
    return status;
  }

  return {
    /** A name that is registered already takes over the definition, and is not rebuilt. */
    async register(environmentId: string, input: DefinitionInput, actorId: string) {
      const definition = definitionOf(input);
      const key = keyOf(environmentId, definition.name);
      const now = clock.now();
      const registered = await store.write(async (session) => {
        const done = await registerProjection(session, key, definition, now);
        await noteChange(session, key, "update", { actorId, ids, now });
        return done;
      });
      onChanged({ key, kind: "other" });
      return registered;
    },

    ...readsIn({ store, clock }),

    pause: (environmentId: string, name: string, actorId: string) =>
      change(environmentId, name, actorId, async (session, held, now) => {
        if (held.status === "paused") return false;
        requireMove("pause", held);
        held.status = "paused";
        held.updated_at = now;
        await updateProjection(session, held);
        return true;
      }),

    /** Also tries again what failed; `skipEventId` is passed over instead. */
    async resume(
      environmentId: string,
      name: string,
      { skipEventId, actorId }: { skipEventId: string; actorId: string },
    ): Promise<ProjectionStatus> {
      const skipped = skipEventId === "" ? undefined : await findEvent(store, environmentId, skipEventId);
      if (skipEventId !== "" && !skipped)
        throw new Fault("not_found", `event ${skipEventId.slice(0, 255)} not found`);
      return change(environmentId, name, actorId, async (session, held, now) => {
        if (skipped) await skip(session, held, { eventId: skipEventId, position: skipped.position });
        if (held.status === "running") return skipped !== undefined;
        requireMove("resume", held);
        for (const generation of held.generations) await goBack(session, held, generation, now);
        clearError(held);
        held.status = "running";
        held.updated_at = now;
        await updateProjection(session, held);
        return true;
      });
    },

    async delete(environmentId: string, name: string, actorId: string) {
      const key = keyOf(environmentId, name);
      const deleted = await store.write(async (session) => {
        const held = await holdProjection(session, key);
        if (!held) throw unknownProjection(name);
        await noteChange(session, key, "delete", { actorId, ids, now: clock.now() });
        await deleteProjection(session, held, clock.now());
        return held;
      });
      if (deleted.mode === "sql") await onTablesLeft(deleted.generations);
      onChanged({ key, kind: "other" });
    },
  };
}

async function readOf(store: Store, environmentId: string, name: string): Promise<HeldProjection> {
  const held = await readProjection(store, keyOf(environmentId, name));
  if (!held) throw unknownProjection(name);
  return held;
}

const readsIn = ({ store, clock }: Pick<ProjectionsDeps, "store" | "clock">) => ({
  async get(environmentId: string, name: string, asked: ReadInput): Promise<ReadProjection> {
    const { generation: wanted = 0, asOf } = asked;
    const partition = partitionOf("partition", asked.partition);
    for (;;) {
      const held = await readOf(store, environmentId, name);
      const generation =
        wanted === 0 ? readGeneration(held) : held.generations.find((one) => one.generation === wanted);
      if (!generation) throw new Fault("not_found", `generation ${wanted} of projection "${name}" not found`);
      const state =
        asOf === undefined
          ? await getState(store, generation, partition)
          : await stateAt(store, generation, { partition, asOf, now: clock.now() });
      // The states of a generation that is gone may be swept already: they look as if never folded.
      if (!state && (await getProjection(store, held))?.generation !== held.generation) continue;
      const made = held.mode === "sql" ? await getSqlProjection(store, held) : undefined;
      return { held, generation, partition, state: state?.state === null ? undefined : state, made };
    }
  },

  list: (environmentId: string, query: ListProjectionsQuery) => listWithTables(store, environmentId, query),

  async standing(environmentId: string, name: string): Promise<ProjectionStanding> {
    const held = await readOf(store, environmentId, name);
    const generation = readGeneration(held);
    const building = held.generations.find((one) => one.generation > held.generation);
    const lag = await lagOf({ store, clock }, held, generation).catch(() => undefined);
    const isRebuilt = held.generations.some(({ target }) => target !== null);
    const rebuild = isRebuilt ? await getRebuild(store, held) : undefined;
    return { held, generation, building, lag, rebuild };
  },

  async partitions(environmentId: string, name: string, { search, limit }: PartitionsInput) {
    if (Buffer.byteLength(search) > searchBytesMax) throw invalid("q", `at most ${searchBytesMax} bytes`);
    if (!search.isWellFormed() || search.includes("\0"))
      throw invalid("q", "must be well-formed Unicode without zero bytes");
    const held = await readOf(store, environmentId, name);
    const most = limit === undefined || limit <= 0 ? partitionsDefault : Math.min(limit, partitionsMax);
    return listPartitions(store, readGeneration(held), { search, limit: most });
  },

  ...projectionHistory(store),
});

async function listWithTables(
  store: Store,
  environmentId: string,
  { status, mode, limit, offset }: ListProjectionsQuery,
): Promise<{ projections: ListedProjection[]; totalCount: number }> {
  const filter = { environmentId, status: statusOf(status), mode: modeOf(mode) };
  const [projections, totalCount] = await Promise.all([
    listProjections(store, filter, { limit: pageSize(limit), offset: pageOffset(offset) }),
    countListed(store, filter),
  ]);
  const names = projections.filter(({ mode: one }) => one === "sql").map(({ name }) => name);
  const rows = names.length === 0 ? [] : await sqlProjectionsOf(store, environmentId, names);
  const made = new Map(rows.map((row) => [row.name, row]));
  return { projections: projections.map((row) => ({ ...row, made: made.get(row.name) })), totalCount };
}

export async function registerProjection(
  session: Session,
  key: ProjectionKey,
  definition: ProjectionDefinition,
  now: Instant,
): Promise<{ status: ProjectionStatus; position: number }> {
  const head = await shareHead(session, key.environment_id);
  if (!head) throw new Fault("not_found", `environment ${key.environment_id} not found`);
  const found = await holdProjection(session, key);
  if (found) {
    if ((found.mode === "sql") !== (definition.mode === "sql"))
      throw new Fault("already_exists", `projection "${key.name}" is ${found.mode}: delete it first`);
    await updateDefinition(session, key, definition, now);
    await carryOn(session, key, definition, now);
    return { status: found.status, position: readGeneration(found).position };
  }
  if ((await countProjections(session, key.environment_id)) >= projectionsMax)
    throw new Fault(
      "resource_exhausted",
      `the environment has the most projections allowed (${projectionsMax})`,
    );
  const generation = (await lastGeneration(session, key)) + 1;
  const after = Math.max(0, head.retention_floor - 1);
  await insertProjection(session, {
    ...{ ...key, ...noError, generation, status: "running", stale_holder: null, refuses_save: 0 },
    ...{
      mode: definition.mode,
      events: JSON.stringify(definition.events),
      version: definition.version,
    },
    ...{ partition_path: definition.partitionPath, created_at: now, updated_at: now },
  });
  const fresh = newGeneration(
    { ...key, generation },
    {
      ...{ after, version: definition.version, isRecording: definition.isRecording, now },
    },
  );
  await insertGeneration(session, { ...fresh, holder: definition.mode === "sql" ? serverHolder : null });
  return { status: "running" as const, position: after };
}

export function readGeneration(held: HeldProjection): GenerationRow {
  const found = held.generations.find((one) => one.generation === held.generation);
  if (!found) throw new Error(`projection ${held.name} has no generation ${held.generation}`);
  return found;
}

function requireMove(verb: keyof typeof moves, { name, status }: HeldProjection): void {
  if (!(moves[verb].from as readonly string[]).includes(status)) throw wrongStatus(verb, name, status);
}

/** Behind the end of the log, in events of the projection. */
export async function lagOf(
  reads: SteppedReads,
  held: { environment_id: string; events: string },
  { position }: { position: number },
): Promise<number> {
  const head = await getHead(reads.store, held.environment_id);
  return eventsBehind(reads, held, { after: position, last: head?.position ?? position });
}

/** Passes over the event that stopped a partition, or an external projection. */
async function skip(
  session: Session,
  held: HeldProjection,
  { eventId, position }: { eventId: string; position: number },
): Promise<void> {
  const generation = readGeneration(held);
  if (held.mode === "managed" && (await skipEvent(session, generation, { eventId, position })) > 0) return;
  if (held.mode === "managed" || held.error_event_id !== eventId)
    throw new Fault(
      "failed_precondition",
      `no handler of projection "${held.name}" has failed at event ${eventId}`,
    );
  generation.cursor_position = Math.max(generation.cursor_position, position);
  generation.position = Math.max(generation.position, position);
  generation.delivered = generation.cursor_position;
  await clearPending(session, generation);
  await updateGeneration(session, generation);
}

/**
 * Partitions that have stopped are fed again from there; the others know what they have folded. An external
 * projection gets again what it had not acknowledged, on a new stream.
 */
async function goBack(
  session: Session,
  held: HeldProjection,
  generation: GenerationRow,
  now: Instant,
): Promise<void> {
  const stopped = await firstStopped(session, generation);
  const hasFailed = held.mode === "external" && held.status === "error";
  if (!stopped && !hasFailed) return;
  await clearErrors(session, generation);
  const before = (stopped?.error_position ?? generation.cursor_position + 1) - 1;
  const after = Math.min(generation.cursor_position, before);
  if (await firstUnsaved(session, generation)) endLease(held, generation, now);
  else generation.stream_id = null;
  touch(generation, now);
  await clearPending(session, generation);
  generation.cursor_position = after;
  generation.delivered = after;
  await updateGeneration(session, generation);
}
