import type { Instant } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
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

export interface LateStartDeps {
  ids: Ids;
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  newRun: (
    record: FunctionRecord,
    event: { id: string; name: string; value: unknown },
    by: { ids: Ids; now: number },
  ) => NewRun;
}

export type LateStart = ReturnType<typeof openLateStart>;

/** Makes runs that begin later than their events, pinned to the definition that these were matched with. */
export function openLateStart({ ids, definitionOf, newRun }: LateStartDeps) {
  return async (
    row: LateRow & { function_status: string },
    event: { id: string; name: string; data: string },
    now: Instant,
  ): Promise<NewRun> => {
    const { environment_id: environmentId, function_id: functionId, function_version: version } = row;
    const definition = await definitionOf(environmentId, functionId, version);
    const times = { createdAt: now, updatedAt: now };
    const record = {
      ...{ environmentId, definition, version, ...times },
      status: row.function_status as FunctionStatus,
    };
    return newRun(record, { id: event.id, name: event.name, value: JSON.parse(event.data) }, { ids, now });
  };
}
