import type { Basics } from "../../../../store/store.ts";
import type { FunctionDefinition } from "../../functions/definition.ts";
import { boundLines, type LogChunk, linesFitting, maskedLines, type NewLines } from "../../logs/rules.ts";
import type { RunReport } from "../execution/report.ts";
import type { RunObserver } from "../observer.ts";
import { roomsOf, type WritingRun } from "./log-rows.ts";

export type WritingReport = RunReport & { logs: LogChunk };

/** Runs that are remembered; of those before, the store is asked. */
const runsMax = 4_096;

/**
 * Runs that this node handed out for the first time. The first report that brings lines of such a run finds
 * all room free, so that the store need not be asked before its flush.
 */
export class FirstRooms implements Partial<RunObserver> {
  readonly #runs = new Map<string, WritingRun & { environmentId: string }>();

  claimed(runs: Parameters<RunObserver["claimed"]>[0]): void {
    for (const run of runs) {
      if (run.execution_seq !== 1) continue;
      this.#runs.set(run.run_id, {
        environmentId: run.environment_id,
        ...{ functionId: run.function_id, functionVersion: run.function_version },
        ...{ attemptLines: 0, runBytes: 0 },
      });
      if (this.#runs.size > runsMax) this.#runs.delete(this.#runs.keys().next().value!);
    }
  }

  /** What brought lines may bring them again, with more: the store knows how many there are. */
  reported(changes: Parameters<RunObserver["reported"]>[0]): void {
    for (const { runId, logs } of changes) if (logs) this.#runs.delete(runId);
  }

  ended(runs: Parameters<RunObserver["ended"]>[0]): void {
    for (const { runId } of runs) this.#runs.delete(runId);
  }

  /** Undefined where lines may be stored already, or the store must be asked. */
  of({ environmentId, runId, executionSeq, logs }: WritingReport): WritingRun | undefined {
    if (executionSeq !== 1 || logs.offset !== 0) return undefined;
    const run = this.#runs.get(runId);
    return run?.environmentId === environmentId ? run : undefined;
  }
}

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
