import type { Clock } from "../../../../kit/clock.ts";
import { missing } from "../../../../kit/fault.ts";
import type { Ids } from "../../../../kit/ids.ts";
import { isOfRow, type Session, StoreError } from "../../../../store/store.ts";
import type { FunctionRecord } from "../../functions/definition.ts";
import type { StartedRun } from "../../runs/create.ts";
import type { NewRun, QueueHint } from "../../runs/run.ts";
import type { StarterRights } from "../act.ts";
import {
  repairItemsMax,
  repairItemsPerSecond,
  repairSliceMax,
  replayQueuedMax,
  replayRoomWaitMs,
  replaySliceEventsMax,
  replaySliceMs,
  replaySlicePositionsMax,
} from "../limits.ts";
import * as rows from "../rows.ts";
import { errorText, type RepairCounts, type RepairOutcome, type SliceEnd } from "../rules.ts";
import * as replays from "./rows.ts";
import type { ReplayRequest } from "./rules.ts";
import { ReplayScan, type ReplayScanDeps } from "./scan.ts";

export interface ReplayTurnDeps extends ReplayScanDeps {
  clock: Clock;
  ids: Ids;
  /** Undefined once it is deleted. */
  functionOf: (environmentId: string, functionId: string) => Promise<FunctionRecord | undefined>;
  newRun: (
    record: FunctionRecord,
    event: { id: string; name: string; value: unknown },
    by: { ids: Ids; now: number },
  ) => NewRun;
  insertRuns: (session: Session, started: readonly StartedRun[], now: number) => Promise<void>;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  /** Called after the commit. */
  onQueued: (queues: readonly QueueHint[]) => void;
  onCreated: (runs: readonly NewRun[], at: number) => void;
  count: (outcome: RepairOutcome) => void;
}

export interface HeldReplay {
  row: rows.RepairRow;
  rights: StarterRights;
  /** Throws `LostRepair` when another holder has the replay; `also` is part of the transaction. */
  save: (change: Partial<rows.RepairChange>, also?: (session: Session) => Promise<unknown>) => Promise<void>;
  complete: () => Promise<SliceEnd>;
}

/** A run that is to be started, or why it cannot be. */
interface RunStart extends StartedRun {
  eventId: string;
  /** Events that were skipped between the start before and this one. */
  skipped: number;
  error?: string;
}

/**
 * Starts the next runs. The place in the log moves in the transaction that inserts them, under the fence of
 * the repair: a node that dies has started a run of every event up to there, and of none after it.
 */
export async function replaySlice(deps: ReplayTurnDeps, held: HeldReplay): Promise<SliceEnd> {
  const { clock, store } = deps;
  const { environment_id: environmentId, cursor_at } = held.row;
  const request = JSON.parse(held.row.request) as ReplayRequest;
  const { functionId } = request;
  const after = cursor_at ?? request.from - 1;
  if (after >= request.to) return held.complete();
  const { done, failed } = countsIn(held.row);
  const left = repairItemsMax - done - failed;
  if (left <= 0)
    return stop(held, `${repairItemsMax} runs are the most of one replay; position ${after + 1} is next`);
  const begunAt = clock.elapsed();
  const record = await deps.functionOf(environmentId, functionId);
  if (!record || record.status === "archived")
    return stop(held, `function ${functionId} takes no runs any more`);
  const queued = await rows.countQueued(store, { environmentId, functionId }, replayQueuedMax);
  const room = Math.min(replayQueuedMax - queued, repairSliceMax, left);
  if (room <= 0) {
    await held.save({ note: `waits: ${replayQueuedMax} runs of ${functionId} are queued` });
    if (record.status === "paused") return "later";
    await clock.sleep(replayRoomWaitMs);
    return "more";
  }
  const hides = held.rights.hidesEvent;
  const scan = new ReplayScan(deps, { record, request, hides, forRuns: true });
  const last = Math.min(request.to, after + replaySlicePositionsMax);
  const slice = await scan.slice(after, last, replaySliceEventsMax);
  const found = await startsOf(deps, { record, again: request.again, room }, slice);
  const ends = await replays.logEnds(store, environmentId);
  // Asked after the read: the floor is raised before the first event expires.
  if (ends && after + 1 < ends.retention_floor)
    return stop(held, `positions below ${ends.retention_floor} have expired`);
  await settle(deps, held, { ...found, request });
  const took = clock.elapsed() - begunAt;
  await clock.sleep(Math.max((found.starts.length * 1000) / repairItemsPerSecond - took, took));
  return "more";
}

async function stop(held: HeldReplay, note: string): Promise<SliceEnd> {
  await held.save({ status: "stopping", note });
  return "more";
}

interface FoundStarts {
  starts: RunStart[];
  /** Behind the last start. */
  skipped: number;
  /** The last position that needs no other look. */
  reached: number;
}

async function startsOf(
  { newRun, ids, clock }: ReplayTurnDeps,
  { record, again, room }: { record: FunctionRecord; again: boolean; room: number },
  slice: Awaited<ReturnType<ReplayScan["slice"]>>,
): Promise<FoundStarts> {
  const starts: RunStart[] = [];
  const until = clock.elapsed() + replaySliceMs;
  let skipped = 0;
  for await (const { event, holds, hasRun, value } of slice.looks) {
    const { id, name, position } = event;
    if (holds && hasRun && !again) skipped++;
    else if (holds) {
      if (starts.length === room) return { starts, skipped, reached: position - 1 };
      const run = newRun(record, { id, name, value }, { ids, now: clock.now() });
      starts.push({ run, position, eventId: id, skipped });
      skipped = 0;
    }
    // A filter may take longer than the lease of the repair lasts.
    if (clock.elapsed() > until) return { starts, skipped, reached: position };
  }
  return { starts, skipped, reached: slice.reached };
}

interface Settling extends FoundStarts {
  request: ReplayRequest;
}

/** Where the store refuses a run, each is tried alone, and what it refuses counts as failed. */
async function settle(deps: ReplayTurnDeps, held: HeldReplay, found: Settling): Promise<void> {
  try {
    await commit(deps, held, found);
  } catch (error) {
    if (!(error instanceof StoreError && isOfRow(error)) || found.starts.length === 0) throw error;
    const [first, ...rest] = found.starts;
    if (rest.length === 0) {
      await commit(deps, held, { ...found, starts: [{ ...first!, error: errorText(error.message) }] });
      return;
    }
    // The next look begins after this event.
    await settle(deps, held, { ...found, starts: [first!], skipped: 0, reached: first!.position });
  }
}

async function commit(
  deps: ReplayTurnDeps,
  held: HeldReplay,
  { request, starts, skipped, reached }: Settling,
): Promise<void> {
  const { clock, insertRuns, shareEnvironment, onQueued, onCreated, count } = deps;
  const { environment_id: environmentId } = held.row;
  const { functionId } = request;
  const now = clock.now();
  const going = starts.filter(({ error }) => error === undefined);
  const before = countsIn(held.row);
  const counts: Required<RepairCounts> = {
    ...before,
    done: before.done + going.length,
    failed: before.failed + starts.length - going.length,
    skipped: starts.reduce((sum, start) => sum + start.skipped, before.skipped + skipped),
    scanned: reached - request.from + 1,
  };
  const items = starts.map(({ run, eventId, error }) => ({
    ...{ runId: run.id, functionId, eventId },
    ...(error === undefined ? { outcome: "done" as const } : { outcome: "failed" as const, error }),
  }));
  const change = { cursor_at: reached, counts: JSON.stringify(counts), note: "" };
  await held.save(change, async (session) => {
    if (starts.length === 0) return;
    await shareEnvironment(session, environmentId);
    if (!(await replays.shareFunction(session, { environmentId, functionId })))
      throw missing("function", functionId);
    if (going.length > 0) await insertRuns(session, going, now);
    await rows.insertItems(session, held.row, items, now);
  });
  for (const { outcome } of items) count(outcome);
  if (going.length === 0) return;
  onQueued([{ environmentId, functionId }]);
  onCreated(
    going.map(({ run }) => run),
    now,
  );
}

const countsIn = ({ counts }: rows.RepairRow) => JSON.parse(counts!) as Required<RepairCounts>;
