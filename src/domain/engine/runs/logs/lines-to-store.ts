import type { Basics } from "../../../../store/store.ts";
import type { FunctionDefinition } from "../../functions/definition.ts";
import { boundLines, type LogChunk, linesFitting, maskedLines, type NewLines } from "../../logs/rules.ts";
import type { RunReport } from "../execution/report.ts";
import type { FirstRooms, WritingReport } from "./first-rooms.ts";
import { roomsOf, type WritingRun } from "./log-rows.ts";

export interface LogsDeps extends Basics<"store" | "log"> {
  /** The definition a run is pinned to. */
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  /** Values of the secrets that exist, by name. */
  secretValues: (environmentId: string, names: readonly string[]) => Promise<Record<string, string>>;
  firstRooms: Pick<FirstRooms, "of">;
}

/** Lines in reports, within their runs' bounds and without secrets, by run. Undefined if there are none. */
export async function linesToStore(
  deps: LogsDeps,
  reports: readonly RunReport[],
): Promise<ReadonlyMap<string, NewLines> | undefined> {
  const writing = reports.filter((report): report is WritingReport => report.logs !== undefined);
  if (writing.length === 0) return undefined;
  const first = writing.map((report) => deps.firstRooms.of(report));
  const asked = writing.filter((_, at) => first[at] === undefined);
  const stored = asked.length > 0 ? await roomsOf(deps.store, asked) : undefined;
  const bounded = writing.map(async ({ environmentId, runId, logs }, at) => {
    const room = first[at] ?? stored?.get(runId);
    return room
      ? ([runId, await shownLines(deps, { environmentId, runId, room, logs })] as const)
      : undefined;
  });
  return new Map((await Promise.all(bounded)).filter((one) => one !== undefined));
}

/** Without its secrets no line is stored. */
async function shownLines(
  { definitionOf, secretValues, log }: LogsDeps,
  {
    environmentId,
    runId,
    room,
    logs,
  }: { environmentId: string; runId: string; room: WritingRun; logs: LogChunk },
): Promise<NewLines> {
  try {
    const { secrets } = await definitionOf(environmentId, room.functionId, room.functionVersion);
    const values = secrets.length > 0 ? Object.values(await secretValues(environmentId, secrets)) : [];
    return boundLines({ ...logs, lines: maskedLines(linesFitting(logs, room), values) }, room);
  } catch (error) {
    log.warn("run.lines_left_out", { runId, lines: logs.lines.length, error });
    return boundLines({ ...logs, lines: [] }, room);
  }
}
