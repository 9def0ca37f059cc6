import type { Starter } from "../../../kit/caller.ts";
import { whenDue } from "../../../kit/clock.ts";
import { runFailedEvent } from "../../../kit/event-names.ts";
import { Fault } from "../../../kit/fault.ts";
import { roundRobin, workOn } from "../../../kit/round-robin.ts";
import type { Basics, Session } from "../../../store/store.ts";
import { delayedAgainMs, delayedSliceMax } from "./limits.ts";
import * as rows from "./rows.ts";
import { type EventDraft, serverSource } from "./rules.ts";
import type { Events } from "./service.ts";

/** A delayed event that was refused when its time had come. */
export interface RefusedEvent {
  environmentId: string;
  id: string;
  name: string;
  /** JSON text. */
  data: string;
  /** The rest of its row. */
  rest: Readonly<Record<string, unknown>>;
  error: Fault;
}

export interface DueDeps extends Basics<"store" | "clock" | "log" | "watch"> {
  events: Pick<Events, "emit">;
  /** Whether the node's clock can be trusted: without that it emits nothing. */
  knowsTime: () => boolean;
  /** Why the sender may not emit the event now; undefined when they may. */
  refusalOf: (sender: Starter, environmentId: string, event: string) => Promise<Fault | undefined>;
  /** Writes what is given up into the dead letters; call the answer after the commit. */
  bury: (session: Session, refused: readonly RefusedEvent[]) => Promise<() => void>;
}

/** Emits delayed events whose time has come; what is refused then is listed among the dead letters. */
export function openDueEmits(deps: DueDeps) {
  const { store, clock, log, events } = deps;
  const outcomes = deps.watch.metrics.counter({
    name: "svc_delayed_events_total",
    help: "Delayed events that were emitted, and those that could not be when their time had come.",
    labels: ["outcome"],
  });
  const emitted = outcomes("emitted");
  const refused = outcomes("refused");

  const originOf = (row: rows.DelayedRow) => ({
    ...{ environmentId: row.environment_id, runId: row.run_id ?? undefined },
    source: row.name === runFailedEvent ? serverSource : "api",
  });

  /** True when it is emitted, false when it is to be tried again, a fault when it is refused for good. */
  async function emit(row: rows.DelayedRow): Promise<boolean | Fault> {
    try {
      const { draft, sender } = readRow(row);
      const gone = sender && (await deps.refusalOf(sender, row.environment_id, row.name));
      if (gone) throw gone;
      await events.emit([{ ...draft, isAccepted: true }], { ...originOf(row), isAccepted: true });
      emitted.add(1);
      return true;
    } catch (error) {
      const { environment_id: environmentId, id, name } = row;
      const isPassing = !(error instanceof Fault) || error.headers?.["Retry-After"] !== undefined;
      log.warn(isPassing ? "event.delayed_again" : "event.delayed_refused", {
        environmentId,
        id,
        name,
        error,
      });
      if (isPassing) return false;
      refused.add(1);
      return error;
    }
  }

  const work = workOn(
    async (slice) => {
      const now = clock.now();
      const due = await store.write((session) =>
        rows.takeDue(session, slice, { now, until: now + delayedAgainMs }),
      );
      const ends = await Promise.all(due.map(emit));
      const done = due.flatMap(({ id }, at) => (ends[at] === false ? [] : id));
      const refusals = due.flatMap((row, at) => {
        const error = ends[at];
        return error instanceof Fault ? refusedOf(row, error) : [];
      });
      if (done.length === 0) return due;
      const buried = await store.write(async (session) => {
        // Of what another node has forgotten meanwhile, nothing is left to give up.
        const gone = new Set(await rows.forgetEmitted(session, done));
        return deps.bury(
          session,
          refusals.filter(({ id }) => gone.has(id)),
        );
      });
      buried();
      return due;
    },
    () => rows.environmentsDelayed(store, clock.now()),
  );

  return {
    /** Emits an event that was given up as one that is sent now; `rest` is JSON text. */
    async requeue(data: string, rest: string): Promise<void> {
      const row = { ...(JSON.parse(rest) as Omit<rows.DelayedRow, "data">), data };
      await events.emit([readRow(row).draft], originOf(row));
    },

    /** The tick of loop `events.delayed`; answers in how many milliseconds the next is due. */
    async emitOnce(): Promise<{ againInMs?: number }> {
      if (!deps.knowsTime()) return {};
      return whenDue(clock, {
        nextAt: () => rows.nextWakeAt(store),
        move: () => roundRobin([work], { clock, limit: delayedSliceMax }),
      });
    },
  };
}

const refusedOf = ({ data, ...rest }: rows.DelayedRow, error: Fault): RefusedEvent => ({
  ...{ environmentId: rest.environment_id, id: rest.id, name: rest.name, data, rest, error },
});

/** Throws a fault for good where the row cannot be read: another try would not read it either. */
function readRow(row: rows.DelayedRow): { draft: EventDraft; sender: Starter | undefined } {
  try {
    return {
      draft: draftOf(row),
      sender: row.sender === null ? undefined : (JSON.parse(row.sender) as Starter),
    };
  } catch (error) {
    throw new Fault("failed_precondition", "what is stored of the event cannot be read", { cause: error });
  }
}

/** An event without a key gets the server's own: a node that dies behind the emit repeats it. */
const draftOf = (row: rows.DelayedRow): EventDraft => ({
  name: row.name,
  version: row.version,
  value: JSON.parse(row.data),
  data: row.data,
  metadata: row.metadata,
  metadataValue: row.metadata === null ? null : (JSON.parse(row.metadata) as Record<string, unknown>),
  ...(row.idempotency_key === null
    ? { idempotencyKey: `delayed:${row.id}`, ownKey: true as const }
    : { idempotencyKey: row.idempotency_key }),
  ...(row.start_refused === 1 && {
    startRefused: new Fault("permission_denied", `its sender may not start function ${row.name}`),
  }),
});
