import { Fault, missing } from "../../../kit/fault.ts";
import { inTurn } from "../../../kit/in-turn.ts";
import type { Cursor } from "../../../kit/page.ts";
import type { Redaction } from "../../../kit/redact.ts";
import { SliceSize } from "../../../kit/slice-size.ts";
import { runOfStep, stepRowId } from "../../../kit/step-id.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { ForgetBytes } from "../../engine/quotas/service.ts";
import type { Retention } from "../retention/service.ts";
import * as rows from "./rows.ts";
import { type DeletedRuns, type EndedStatus, redactedDetail, redactedLines } from "./rules.ts";

export type { ErasedEvent } from "./rows.ts";
export { redactCopies } from "./rows.ts";

/** Who redacts, and for whom. */
export interface Eraser {
  environmentId: string;
  orgId: string;
  actorId: string;
}

export type Erasure = ReturnType<typeof openErasure>;

export interface ErasureDeps extends Basics<"store" | "clock" | "log"> {
  deleteRuns: Retention["deleteRuns"];
  forgetBytes: ForgetBytes;
  /** Captured requests of the org may hold the same texts. */
  forgetCaptures: (orgId: string) => Promise<void>;
}

/** Deletes and redacts what is over, when its owner asks. */
export function openErasure(deps: ErasureDeps) {
  const { store, clock, log, forgetBytes, forgetCaptures } = deps;
  const redactionBy = ({ actorId }: Eraser): Redaction => ({ at: clock.now(), by: actorId });

  return {
    ...deletionsIn(deps),

    /** A second time answers the first. `failed_precondition` of a run that is not over. */
    async redactRun(eraser: Eraser, runId: string) {
      const { environmentId } = eraser;
      const redaction = redactionBy(eraser);
      const run = await store.write(async (session) => {
        const held = await holdOver(session, environmentId, runId);
        if (held.redacted_at !== null) return held;
        await rows.redactSteps(session, runId, redaction);
        await rows.redactOutputs(session, runId);
        await rows.rewriteNotes(session, runId, (detail) => redactedDetail(detail, redaction));
        await rows.rewriteLines(session, runId, (lines) => redactedLines(lines, redaction));
        await rows.redactRun(session, runId, redaction);
        await rows.leaveGroups(session, environmentId, {
          groups: held.error_group === null ? [] : [held.error_group],
          runIds: [runId],
        });
        return held;
      });
      await forgetCaptures(eraser.orgId);
      log.info("run.redacted", { environmentId, runId });
      // Those that started it.
      const unredactedIds = await rows.unredactedOf(store, environmentId, run);
      const { at, by } = run.redacted_at === null ? redaction : { at: run.redacted_at, by: run.redacted_by };
      return { at, by, eventId: run.event_id, unredactedIds };
    },

    /** `stepId` is the SDK's id or the row's. */
    async redactStep(eraser: Eraser, stepId: string): Promise<Redaction> {
      const { environmentId } = eraser;
      const redaction = redactionBy(eraser);
      const runId = runOfStep(stepId);
      if (runId === undefined) throw missing("step", stepId);
      const done = await store.write(async (session) => {
        const [run] = await rows.holdRuns(session, environmentId, [runId]);
        const steps = run ? await rows.stepsOf(session, runId) : [];
        const step = steps.find(({ step_id: id }) => id === stepId || stepRowId(runId, id) === stepId);
        if (!run || !step) throw missing("step", stepId);
        await requireOver(session, environmentId, run);
        if (step.redacted_at !== null) return { at: step.redacted_at, by: step.redacted_by };
        const { step_id: id, name } = step;
        await rows.redactSteps(session, runId, redaction, id);
        await rows.redactOutputs(session, runId, id);
        await rows.rewriteNotes(session, runId, (detail) => redactedDetail(detail, redaction, id));
        await rows.rewriteLines(session, runId, (lines) => redactedLines(lines, redaction, name));
        await rows.touchRun(session, runId, redaction.at);
        return redaction;
      });
      await forgetCaptures(eraser.orgId);
      log.info("step.redacted", { environmentId, runId });
      return done;
    },

    async eventOf(environmentId: string, eventId: string): Promise<rows.ErasedEvent> {
      const event = await rows.eventOf(store, environmentId, eventId);
      if (!event) throw missing("event", eventId);
      return event;
    },

    /** Overwrites the payload of an event, with what else holds it. */
    async redactEvent(eraser: Eraser, event: rows.ErasedEvent) {
      const { environmentId } = eraser;
      const done = await store.write(async (session) => {
        await forgetBytes(session, environmentId, rows.byId(environmentId, event.id), overwrittenBytes);
        return rows.redactEvent(session, environmentId, event, redactionBy(eraser));
      });
      if (!done) throw missing("event", event.id);
      await forgetCaptures(eraser.orgId);
      log.info("event.redacted", { environmentId, eventId: event.id });
      return { entityVersion: done.entity_version ?? 0, at: done.redacted_at };
    },
  };
}

/** A payload that is overwritten is `null`. */
const overwrittenBytes = 4;

const notOver = (runId: string): Fault =>
  new Fault("failed_precondition", `run ${runId} is not over: cancel it, or wait for its end`);

const isAwaited = (runId: string): Fault =>
  new Fault(
    "failed_precondition",
    `another run still waits to be told of the end of run ${runId}: try again`,
  );

/** Throws unless it is over, and nobody waits to be told. */
async function requireOver(session: Session, environmentId: string, run: rows.HeldRun) {
  if (run.status === "active") throw notOver(run.id);
  if ((await rows.awaitedAmong(session, environmentId, [run.id])).size > 0) throw isAwaited(run.id);
  return run;
}

async function holdOver(session: Session, environmentId: string, runId: string): Promise<rows.HeldRun> {
  const [run] = await rows.holdRuns(session, environmentId, [runId]);
  if (!run) throw missing("run", runId);
  return requireOver(session, environmentId, run);
}

interface Deleting extends DeletedRuns {
  limit: number;
  /** Whether a deny policy keeps the run from the caller: it is passed over. */
  isDenied: (runId: string) => Promise<boolean>;
  signal: AbortSignal;
}

/** A call of `DeleteRuns` ends after about this time, even with less deleted than was asked for. */
const deletionMsMax = 15_000;

/**
 * Statuses that are walked together: completed runs have no index of their own, and a walk that passes over
 * the others, call after call, would take longer than the deletion.
 */
const walksOf = (statuses: readonly EndedStatus[]): (readonly EndedStatus[])[] =>
  statuses.includes("completed") ? [statuses] : statuses.map((status) => [status]);

const isAsked = (status: string, statuses: readonly string[]) => statuses.includes(status);

const deletionsIn = ({ store, clock, log, deleteRuns }: ErasureDeps) => {
  // A slice holds no row that others write, and takes some twenty exchanges with PostgreSQL at any size.
  const fitsMs = store.engine === "postgres" ? 40 : undefined;
  const size = new SliceSize(clock, { flushCount: store.flushCount, ...(fitsMs && { fitsMs }) });
  const slices = inTurn();

  async function goneWithGroups(session: Session, environmentId: string, runs: readonly rows.HeldRun[]) {
    const runIds = runs.map(({ id }) => id);
    const gone = await deleteRuns(session, runIds);
    const groups = runs.flatMap(({ error_group: group }) => group ?? []);
    await rows.leaveGroups(session, environmentId, { groups, runIds });
    return gone;
  }

  /**
   * Deletes the ended runs of a slice. A run that another one waits for stays. Deletions of all callers take
   * turns, and share the pace.
   */
  const deleteSome = (environmentId: string, runIds: readonly string[]): Promise<number> =>
    slices("", async () => {
      await size.rest();
      return size.delete(store.write, async (session) => {
        const held = await rows.holdRuns(session, environmentId, runIds);
        const awaited = await rows.awaitedAmong(session, environmentId, runIds);
        const going = held.filter(({ id, status }) => status !== "active" && !awaited.has(id));
        return goneWithGroups(session, environmentId, going);
      });
    });

  /** Answers how many were deleted, and whether there was another one after `limit` of them. */
  async function deleteOf(
    environmentId: string,
    statuses: readonly EndedStatus[],
    asked: Deleting & { endsAt: number },
  ) {
    let deleted = 0;
    let after: Cursor | undefined;
    while (!asked.signal.aborted) {
      const limit = size.rows;
      const found = await rows.someRuns(store, environmentId, asked, { statuses, after, limit });
      const wanted: string[] = [];
      for (const run of found)
        if (isAsked(run.status, statuses) && !(await asked.isDenied(run.id))) wanted.push(run.id);
      const going = wanted.slice(0, asked.limit - deleted);
      if (going.length > 0) deleted += await deleteSome(environmentId, going);
      if (wanted.length > going.length) return { deleted, hasMore: true };
      const last = found.at(-1);
      if (found.length < limit || !last) break;
      // Who calls again is never without progress: what is passed over would be so each time.
      if (deleted > 0 && clock.elapsed() > asked.endsAt) return { deleted, hasMore: true };
      after = { at: last.created_at, id: last.id };
      if (going.length === 0) await size.rest();
    }
    return { deleted, hasMore: asked.signal.aborted };
  }

  return {
    /** With its steps, history, lines and attributes. Its event stays. */
    async deleteRun(environmentId: string, runId: string): Promise<void> {
      await store.write(async (session) =>
        goneWithGroups(session, environmentId, [await holdOver(session, environmentId, runId)]),
      );
      log.info("run.deleted", { environmentId, runId });
    },

    /** The oldest first, a slice a transaction: what was deleted stays so when a later slice fails. */
    async deleteMany(environmentId: string, asked: Deleting): Promise<{ deleted: number; hasMore: boolean }> {
      let deleted = 0;
      let hasMore = false;
      const endsAt = clock.elapsed() + deletionMsMax;
      for (const statuses of walksOf(asked.statuses)) {
        const done = await deleteOf(environmentId, statuses, {
          ...asked,
          ...{ limit: asked.limit - deleted, endsAt },
        });
        deleted += done.deleted;
        hasMore = done.hasMore;
        if (hasMore) break;
      }
      log.info("runs.deleted", { environmentId, deleted });
      return { deleted, hasMore };
    },
  };
};
