import { parseRfc3339 } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { searchBytesMax } from "../../../kit/limits.ts";
import { countedPage, type PageQuery, pageSize, pageStart, writeCursor } from "../../../kit/page.ts";
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

function toFilter(environmentId: string, input: ListRunsInput): rows.RunFilter {
  const statuses = (input.statuses ?? []).map((text) => {
    const status = parseRunStatus(text);
    if (!status)
      throw invalid(
        "statuses",
        `unknown run status "${text.slice(0, 40)}" (one of ${runStatuses.join(", ")})`,
      );
    return status;
  });
  const instant = (field: string, text: string) => {
    const at = parseRfc3339(text);
    if (at === undefined)
      throw new Fault("invalid_argument", `invalid '${field}' parameter: must be RFC3339`, { field });
    return at;
  };
  if (input.search !== undefined && input.search.length > searchBytesMax)
    throw invalid("search", `must be at most ${searchBytesMax} characters`);
  return {
    environmentId,
    statuses,
    ...(input.functionId && { functionId: input.functionId }),
    ...(input.eventId && { eventId: input.eventId }),
    ...(input.search && { search: input.search }),
    ...(input.since && { since: instant("since", input.since) }),
    ...(input.until && { until: instant("until", input.until) }),
  };
}
