import type { Clock, Instant } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { FunctionDefinition, FunctionRecord, FunctionStatus } from "../functions/definition.ts";
import type { NewRun } from "./run.ts";

/** What stands for a run that begins later than its event. */
export interface LateRow {
  environment_id: string;
  function_id: string;
  function_version: number;
  /** Null when the function is deleted. */
  function_status: string | null;
}

/** What is done about rows of which nothing can be made. */
export interface UnreadRows<Row> {
  /** Of the line in the log. */
  event: string;
  putOff: (session: Session, rows: readonly Row[], until: Instant) => Promise<unknown>;
}

/** Runs that begin later than their events, pinned to the definition that these were matched with. */
export type LateStarts = ReturnType<typeof openLateStarts>;

export interface LateStartsDeps extends Basics<"store" | "ids" | "log"> {
  clock: Pick<Clock, "now">;
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  newRun: (
    record: FunctionRecord,
    event: { id: string; name: string; value: unknown },
    by: { ids: Ids; now: number },
  ) => NewRun;
}

/** A row whose definition cannot be read waits this long. */
const unreadMs = 10_000;

export function openLateStarts({ store, clock, ids, log, definitionOf, newRun }: LateStartsDeps) {
  return {
    async runOf(
      row: LateRow & { function_status: string },
      { id, name, data }: { id: string; name: string; data: string },
      now: Instant,
    ): Promise<NewRun> {
      const { environment_id: environmentId, function_id: functionId, function_version: version } = row;
      const definition = await definitionOf(environmentId, functionId, version);
      const status = row.function_status as FunctionStatus;
      const record = { environmentId, definition, status, version, createdAt: now, updatedAt: now };
      return newRun(record, { id, name, value: JSON.parse(data) }, { ids, now });
    },

    /** What is made of each row. One of which nothing can be made is told and put off; the others go on. */
    async each<Row extends LateRow, Made>(
      rows: readonly Row[],
      make: (row: Row, at: number) => Promise<Made>,
      { event, putOff }: UnreadRows<Row>,
    ): Promise<{ row: Row; made: Made }[]> {
      const read = await Promise.allSettled(rows.map(make));
      const unread = rows.filter((_, at) => read[at]!.status === "rejected");
      for (const [at, one] of read.entries())
        if (one.status === "rejected") {
          const { environment_id: environmentId, function_id: functionId } = rows[at]!;
          log.warn(event, { environmentId, functionId, error: one.reason });
        }
      if (unread.length > 0) await store.write((session) => putOff(session, unread, clock.now() + unreadMs));
      return read.flatMap((one, at) =>
        one.status === "fulfilled" ? { row: rows[at]!, made: one.value } : [],
      );
    },
  };
}
