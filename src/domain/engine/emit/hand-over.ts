import type { Instant } from "../../../kit/clock.ts";
import type { Feeds } from "../../log/core/feed.ts";
import type { NewArm } from "../debounce/arm.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { NewRun, QueueHint } from "../runs/run.ts";
import type { Matcher } from "../runs/waits/matcher.ts";
import { type EmittedRow, loggedEvent } from "./flush.ts";
import type { ReservedEvent } from "./prepare.ts";

export interface HandOverDeps {
  dispatcher: Pick<Dispatcher, "answerDelivered">;
  /** Function queues that have got runs which no worker holds yet. */
  onQueued: (lanes: readonly QueueHint[]) => void;
  /** Called after the commit with the debounced starts. */
  onArmed: (arms: readonly NewArm[]) => void;
  /** Called after the commit when events joined batches. */
  onJoined: () => void;
  /** Called after the commit with the started runs and their `createdAt`: an event's time may be later. */
  onCreated?: (runs: readonly NewRun[], at: Instant) => void;
  /** Called after the commit with each event that was written, and when that was. */
  onLogged?: (event: ReservedEvent, at: Instant) => void;
  /** Called after the commit with an event that was appended to the stream of its entity. */
  onAppended?: (event: ReservedEvent, at: Instant) => void;
  feeds: Pick<Feeds, "wanted" | "committed">;
  /** Looks at what was logged in environments that have waits. */
  matcher: Pick<Matcher, "wanted" | "wake">;
}

/**
 * Passes a flush that was committed as of `now` on: runs to the workers reserved for them, the others to
 * their queues, events to readers.
 */
export function openHandOver(deps: HandOverDeps) {
  const { dispatcher, onQueued, onArmed, onJoined, onCreated, onLogged, onAppended, feeds, matcher } = deps;

  function deliverRuns(events: readonly ReservedEvent[], logged: readonly EmittedRow[]): void {
    const rowOf = new Map(logged.map((row) => [events[row.ord - 1]!, row]));
    const queued = new Map<string, QueueHint>();
    for (const event of events) {
      const row = rowOf.get(event);
      for (const run of event.runs) {
        const reservation = event.reservations.get(run.id);
        const denied = row?.denied?.includes(run.id) === true;
        if ((!reservation || denied) && row)
          queued.set(run.laneId ?? `${run.environmentId}\n${run.functionId}`, {
            environmentId: run.environmentId,
            functionId: run.functionId,
            ...(run.laneId !== null && { laneId: run.laneId }),
          });
        if (reservation && row && !denied) reservation.deliver(run, loggedEvent(event, row.position, row.at));
        if (reservation && (!row || denied)) reservation.drop();
      }
      event.reservations.clear();
    }
    dispatcher.answerDelivered();
    const arms = logged.flatMap(({ ord }) => events[ord - 1]!.arms);
    if (arms.length > 0) onArmed(arms);
    if (logged.some(({ ord }) => events[ord - 1]!.joins !== undefined)) onJoined();
    if (queued.size > 0) onQueued([...queued.values()]);
  }

  function tellReaders(events: readonly ReservedEvent[], logged: readonly EmittedRow[], now: Instant): void {
    for (const { ord, at } of logged) {
      const event = events[ord - 1]!;
      const { environmentId, runs, entity } = event;
      onLogged?.(event, now);
      if (entity !== null) onAppended?.(event, at);
      if (runs.length > 0) onCreated?.(runs, now);
      if (matcher.wanted(environmentId) || runs.some((run) => run.cancels)) matcher.wake(environmentId);
    }
    const rows = logged.filter(({ ord }) => feeds.wanted(events[ord - 1]!.environmentId));
    if (rows.length === 0) return;
    const byEnvironment = Map.groupBy(rows, ({ ord }) => events[ord - 1]!.environmentId);
    for (const [environmentId, own] of byEnvironment) {
      own.sort((a, b) => a.position - b.position);
      feeds.committed(environmentId, own.at(-1)!.position, () =>
        own.map(({ ord, position, at }) => loggedEvent(events[ord - 1]!, position, at)),
      );
    }
  }

  return (events: readonly ReservedEvent[], logged: readonly EmittedRow[], now: Instant): void => {
    deliverRuns(events, logged);
    tellReaders(events, logged, now);
  };
}
