import { invalid } from "../../../kit/fault.ts";
import { searchBytesMax } from "../../../kit/limits.ts";
import {
  countedPage,
  type PageQuery,
  pageSize,
  pageStart,
  timeBound,
  writeCursor,
} from "../../../kit/page.ts";
import type { Store } from "../../../store/store.ts";
import * as rows from "./rows.ts";
import { parseRunStatus, runStatuses } from "./rules.ts";
import type { Run } from "./run.ts";

export interface ListRunsInput extends PageQuery {
  functionId?: string;
  eventId?: string;
  search?: string;
  /** `running`, `RUNNING` or `RUN_STATUS_RUNNING`. */
  statuses?: readonly string[];
  /** RFC 3339, as `until`. */
  since?: string;
  until?: string;
  /** Only runs with compensations that failed for good. */
  compensationFailed?: boolean;
}

export interface RunsPage {
  runs: Run[];
  nextCursor: string | undefined;
  /** Counted up to `countCap`. */
  totalCount: number;
}

export async function listRuns(store: Store, environmentId: string, input: ListRunsInput): Promise<RunsPage> {
  const filter = toFilter(environmentId, input);
  const start = pageStart(input);
  const { items, ...page } = await countedPage(
    pageSize(input.limit),
    (limit) => rows.listRuns(store, filter, { ...start, limit }),
    () => rows.countRuns(store, filter),
    ({ createdAt, id }) => writeCursor({ at: createdAt, id }),
  );
  return { runs: items, ...page };
}

export function toFilter(environmentId: string, input: ListRunsInput): rows.RunFilter {
  const statuses = (input.statuses ?? []).map((text) => {
    const status = parseRunStatus(text);
    if (!status)
      throw invalid(
        "statuses",
        `unknown run status "${text.slice(0, 40)}" (one of ${runStatuses.join(", ")})`,
      );
    return status;
  });
  if (input.search !== undefined && input.search.length > searchBytesMax)
    throw invalid("search", `must be at most ${searchBytesMax} characters`);
  const since = timeBound("since", input.since);
  const until = timeBound("until", input.until);
  return {
    environmentId,
    statuses,
    ...(input.functionId && { functionId: input.functionId }),
    ...(input.eventId && { eventId: input.eventId }),
    ...(input.search && { search: input.search }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
    ...(input.compensationFailed && { undoFailed: true }),
  };
}
