import { invalid } from "../../../kit/fault.ts";
import { searchBytesMax } from "../../../kit/limits.ts";
import { type PageQuery, pageSize, timeBound } from "../../../kit/page.ts";
import { stated } from "../../../kit/stated.ts";
import type { Store } from "../../../store/store.ts";
import { type AttributeFilterInput, readFilters, requireAttributeName } from "../attributes/rules.ts";
import type { AttributeNames } from "./attributes/attribute-names.ts";
import { type AttributeOrder, findRuns } from "./attributes/find-runs.ts";
import type { RunsPage } from "./lists/look.ts";
import { pageOfRuns } from "./lists/page-of-runs.ts";
import type { RunFilter } from "./rows.ts";
import { askedStatuses, parseRunStatus } from "./rules.ts";

export interface ListRunsInput extends PageQuery {
  functionId?: string;
  eventId?: string;
  search?: string;
  /** `running`, `RUNNING` or `RUN_STATUS_RUNNING`; `held` and others of one reason of a pause. */
  statuses?: readonly string[];
  /** RFC 3339, as `until`. */
  since?: string;
  until?: string;
  /** Only runs with compensations that failed for good. */
  compensationFailed?: boolean;
  /** Only failures of this group. */
  errorGroup?: string;
  /** Exactly. */
  eventName?: string;
  /** Only failures whose message, code or stack holds it, in either case. */
  errorText?: string;
  /** All of them must be met. */
  attributes?: readonly AttributeFilterInput[];
  orderBy?: { name: string; ascending?: boolean };
}

export type { RunsPage };

export interface ListRunsDeps {
  store: Store;
  names: Pick<AttributeNames, "requireTypes">;
}

export async function listRuns(
  { store, names }: ListRunsDeps,
  environmentId: string,
  input: ListRunsInput,
): Promise<RunsPage> {
  const filter = toFilter(environmentId, input);
  const order = orderOf(input);
  const { attributes } = filter;
  if (attributes || order) {
    if (input.offset) throw invalid("offset", "cannot be combined with attributes and orderBy: use cursor");
    await names.requireTypes(environmentId, attributes ?? [], order?.name);
    const size = pageSize(input.limit);
    return findRuns(store, {
      filter: { ...filter, attributes: attributes ?? [] },
      ...{ order, size, cursor: input.cursor },
    });
  }
  return pageOfRuns(store, filter, input);
}

function orderOf({ orderBy }: ListRunsInput): AttributeOrder | undefined {
  if (!orderBy) return undefined;
  return {
    name: requireAttributeName("orderBy.name", orderBy.name),
    isAscending: orderBy.ascending ?? false,
  };
}

export function toFilter(environmentId: string, input: ListRunsInput): RunFilter {
  const statuses = (input.statuses ?? []).map((text) => {
    const status = parseRunStatus(text);
    if (!status)
      throw invalid(
        "statuses",
        `unknown run status "${text.slice(0, 40)}" (one of ${askedStatuses.join(", ")})`,
      );
    return status;
  });
  for (const name of ["search", "eventName", "errorText"] as const)
    if ((input[name] ?? "").length > searchBytesMax)
      throw invalid(name, `must be at most ${searchBytesMax} characters`);
  const since = timeBound("since", input.since);
  const until = timeBound("until", input.until);
  return {
    environmentId,
    statuses,
    ...(input.functionId && { functionId: input.functionId }),
    ...(input.eventId && { eventId: input.eventId }),
    ...(input.search && { search: input.search }),
    ...stated({ since, until }),
    ...(input.compensationFailed && { undoFailed: true }),
    ...(input.errorGroup && { errorGroup: input.errorGroup }),
    ...(input.eventName && { eventName: input.eventName }),
    ...(input.errorText && { errorText: input.errorText }),
    ...(input.attributes?.length && { attributes: readFilters("attributes", input.attributes) }),
  };
}
