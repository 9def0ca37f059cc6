import type { Caller } from "../../../../kit/caller.ts";
import { type Clock, rfc3339 } from "../../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../../kit/fault.ts";
import type { Ids } from "../../../../kit/ids.ts";
import type { Log } from "../../../../kit/log.ts";
import { timeBound } from "../../../../kit/page.ts";
import type { Session, Store, StoreReader } from "../../../../store/store.ts";
import type { FunctionRecord, TriggerDefinition } from "../../functions/definition.ts";
import { requireTriggerEvent, requireTriggerExpression } from "../../functions/rules.ts";
import type { Functions } from "../../functions/service.ts";
import {
  previewSamplesMax,
  replayPreviewEventsMax,
  replayPreviewMs,
  replaySlicePositionsMax,
} from "../limits.ts";
import { insertWhereRoom, newRepair } from "../new-repair.ts";
import type { RepairRow } from "../rows.ts";
import { noReplayCounts, requireReason } from "../rules.ts";
import { type ShownRepair, shownRepair } from "../views.ts";
import * as rows from "./rows.ts";
import {
  belowFloor,
  type ReplayEvents,
  type ReplayInput,
  type ReplayRequest,
  type ReplayWindow,
  replayAction,
  requireOneEnd,
  requireReplayable,
} from "./rules.ts";
import { ReplayScan, type ReplayScanDeps, type ReplayScanOf } from "./scan.ts";

/** The positions asked for, of a log with these ends. Throws the fault that names the field and the floor. */
async function windowOf(
  reader: StoreReader,
  environmentId: string,
  events: ReplayEvents,
  ends: rows.LogEnds,
): Promise<ReplayWindow> {
  const from = await firstOf(reader, environmentId, events, ends);
  const { toPosition, until } = events;
  if (toPosition && toPosition > ends.position) throw beyondEnd("events.to_position", ends.position);
  if (toPosition) return { from, to: toPosition };
  const end = timeBound("events.until", until || undefined);
  if (end === undefined || end >= ends.last_at) return { from, to: ends.position };
  const last = (await rows.lastUntil(reader, environmentId, end)) ?? 0;
  return { from, to: Math.max(from - 1, last) };
}

const beyondEnd = (field: string, position: number) =>
  invalid(field, `must be at most ${position}, the end of the log`);

async function firstOf(
  reader: StoreReader,
  environmentId: string,
  { fromPosition, since }: ReplayEvents,
  { position, retention_floor, last_at }: rows.LogEnds,
): Promise<number> {
  const floor = Math.max(1, retention_floor);
  if (fromPosition) {
    if (fromPosition > position) throw beyondEnd("events.from_position", position);
    if (fromPosition < floor) throw belowFloor("events.from_position", floor, `${floor}`);
    return fromPosition;
  }
  const begin = timeBound("events.since", since || undefined);
  if (begin === undefined) return floor;
  if (floor > 1) {
    const oldest = (await rows.timeAt(reader, environmentId, floor)) ?? last_at + 1;
    if (begin < oldest) throw belowFloor("events.since", floor, rfc3339(oldest));
  }
  return Math.max(floor, (await rows.firstSince(reader, environmentId, begin)) ?? position + 1);
}

/** What events are matched with: the pattern and the filter, or the function's own triggers. */
function triggersOf(
  { definition: { id, triggers } }: FunctionRecord,
  { pattern, filter }: ReplayEvents,
): TriggerDefinition[] {
  if (filter) requireTriggerExpression("events.filter", filter);
  if (pattern) requireTriggerEvent("events.pattern", pattern);
  if (pattern) return [{ event: pattern, ...(filter && { expression: filter }) }];
  const own = triggers.filter(({ event }) => event !== undefined);
  if (own.length === 0) throw invalid("events.pattern", `is required: function ${id} has no event trigger`);
  if (!filter) return own;
  return own.map(({ event, expression }) => {
    const both = expression === undefined ? filter : `(${expression}) && (${filter})`;
    requireTriggerExpression("events.filter", both);
    return { ...(event !== undefined && { event }), expression: both };
  });
}

export interface ReplayStartDeps extends ReplayScanDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  functions: Pick<Functions, "withFunction">;
  /** Undefined when there is none. */
  functionOf: (environmentId: string, functionId: string) => Promise<FunctionRecord | undefined>;
  /** Asks for a look at the repairs now. */
  wake: () => void;
}

export interface ReplayPreview extends ReplayWindow {
  scanned: number;
  isTruncated: boolean;
  matched: number;
  withRun: number;
  toStart: number;
  samples: (rows.PastEvent & { hasRun: boolean })[];
}

/** What a replay would do, and its start; the work is that of repairs. */
export function openReplayStarts(deps: ReplayStartDeps) {
  const { store, clock, ids, log, functions, wake } = deps;

  return {
    async preview(
      environmentId: string,
      { functionId, events }: { functionId: string; events: ReplayEvents },
      hides: ReplayScanOf["hides"],
    ): Promise<ReplayPreview> {
      requireOneEnd(events, false);
      const record = await deps.functionOf(environmentId, functionId);
      if (!record) throw missing("function", functionId);
      requireReplayable(record, false);
      const triggers = triggersOf(record, events);
      const ends = await rows.logEnds(store, environmentId);
      if (!ends) throw missing("environment", environmentId);
      const window = await windowOf(store, environmentId, events, ends);
      const again = events.again ?? false;
      const scan = new ReplayScan(deps, { record, request: { triggers, again }, hides });
      return look(scan, window, again);
    },

    /**
     * The window is closed under the lock of the log's head. What triggers start from then on, and what the
     * function becomes active for, has later positions: none is in both, and none in neither.
     */
    async start(environmentId: string, caller: Caller, input: ReplayInput): Promise<ShownRepair> {
      const { functionId, events, thenLive = false, reason } = input;
      requireReason(reason);
      requireOneEnd(events, thenLive);
      const now = clock.now();
      const repairId = ids.next("rep");
      const status = thenLive ? "active" : undefined;
      const target = { environmentId, id: functionId, actorId: caller.id, status } as const;
      const row = await functions.withFunction(target, async (session, record) => {
        requireReplayable(record, thenLive);
        const triggers = triggersOf(record, events);
        const ends = await rows.holdLog(session, environmentId);
        if (!ends) throw missing("environment", environmentId);
        const window = await windowOf(session, environmentId, events, ends);
        await requireNoOther(session, environmentId, functionId);
        const request: ReplayRequest = {
          ...{ functionId, triggers, ...window, again: events.again ?? false },
          ...(thenLive && { liveFrom: ends.position + 1 }),
        };
        const asked = { environmentId, caller, action: replayAction, reason, request };
        const made: RepairRow = {
          ...newRepair(asked, { id: repairId, now }),
          ...{ phase: "work", cursor_at: window.from - 1 },
          counts: JSON.stringify(noReplayCounts()),
        };
        await insertWhereRoom(session, made);
        return made;
      });
      log.info("repair.started", { repairId, environmentId, action: replayAction, by: caller.id });
      wake();
      return shownRepair(store, row);
    },
  };

  async function look(scan: ReplayScan, { from, to }: ReplayWindow, again: boolean): Promise<ReplayPreview> {
    const until = clock.elapsed() + replayPreviewMs;
    const end = Math.min(to, from - 1 + replayPreviewEventsMax);
    const samples: ReplayPreview["samples"] = [];
    let [reached, matched, withRun] = [from - 1, 0, 0];
    const isInTime = () => clock.elapsed() < until;
    while (reached < end && isInTime()) {
      const last = Math.min(end, reached + replaySlicePositionsMax);
      const slice = await scan.slice(reached, last, replaySlicePositionsMax);
      for await (const { event, holds, hasRun } of slice.looks) {
        reached = event.position;
        if (holds) {
          matched++;
          if (hasRun) withRun++;
          if (samples.length < previewSamplesMax) samples.push({ ...event, hasRun });
        }
        if (!isInTime()) break;
      }
      if (isInTime()) reached = slice.reached;
    }
    const toStart = again ? matched : matched - withRun;
    const scanned = reached - from + 1;
    return { from, to, scanned, isTruncated: reached < to, matched, withRun, toStart, samples };
  }
}

/** Two replays of one function could start it twice on one event. */
async function requireNoOther(session: Session, environmentId: string, functionId: string): Promise<void> {
  const open = await rows.openReplays(session, environmentId);
  const other = open.find(({ request }) => (JSON.parse(request) as ReplayRequest).functionId === functionId);
  if (other)
    throw new Fault("failed_precondition", `replay ${other.id} of function ${functionId} is not over`);
}
