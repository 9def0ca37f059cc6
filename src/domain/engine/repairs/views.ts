import { missing } from "../../../kit/fault.ts";
import {
  pageOf,
  pageSize,
  readCursor,
  readNameCursor,
  writeCursor,
  writeNameCursor,
} from "../../../kit/page.ts";
import type { Store } from "../../../store/store.ts";
import type { SelectedRun, SelectRuns } from "../runs/list-runs.ts";
import { previewCountMax, previewSamplesMax } from "./limits.ts";
import type { ItemRow, RepairRow } from "./rows.ts";
import * as rows from "./rows.ts";
import { actionOf, filterOf, outcomeOf, type RepairCounts, type RepairInput } from "./rules.ts";
import { countsOf } from "./turn.ts";

export type { ItemRow } from "./rows.ts";

export interface ShownRepair {
  id: string;
  row: RepairRow;
  counts: RepairCounts;
}

export interface RepairPreview {
  totalCount: number;
  isTruncated: boolean;
  byStatus: Record<string, number>;
  samples: SelectedRun[];
}

export interface Paging {
  limit?: number | undefined;
  cursor?: string | undefined;
}

export const shownRepair = async (
  store: Pick<Store, "all" | "one">,
  row: RepairRow,
): Promise<ShownRepair> => ({
  ...{ id: row.id, row, counts: await countsOf(store, row) },
});

/** What callers see of repairs, and of what one would do. */
export function openRepairViews({ store, select }: { store: Store; select: SelectRuns }) {
  async function find(environmentId: string, id: string): Promise<RepairRow> {
    const row = await rows.getRepair(store, { environment_id: environmentId, id });
    if (!row) throw missing("repair", id);
    return row;
  }

  const shown = (row: RepairRow) => shownRepair(store, row);

  return {
    async preview(
      environmentId: string,
      input: Pick<RepairInput, "action" | "filter">,
    ): Promise<RepairPreview> {
      const filter = await select.checked(environmentId, filterOf(actionOf(input.action), input.filter));
      const [samples, counted] = await Promise.all([
        select.page(filter, { after: undefined, limit: previewSamplesMax }),
        select.count(filter, previewCountMax + 1),
      ]);
      const totalCount = [...counted.values()].reduce((sum, one) => sum + one, 0);
      const isTruncated = totalCount > previewCountMax;
      return {
        ...{ totalCount: Math.min(totalCount, previewCountMax), isTruncated, samples },
        byStatus: Object.fromEntries(counted),
      };
    },

    get: async (environmentId: string, id: string) => shown(await find(environmentId, id)),

    async list(environmentId: string, { limit, cursor }: Paging) {
      const size = pageSize(limit);
      const after = cursor ? readCursor("cursor", cursor) : undefined;
      const found = await rows.listRepairs(store, environmentId, { after, limit: size + 1 });
      const { items, nextCursor } = pageOf(found, size, (last) =>
        writeCursor({ at: last.created_at, id: last.id }),
      );
      return { repairs: await Promise.all(items.map(shown)), nextCursor: nextCursor ?? "" };
    },

    async items(
      environmentId: string,
      id: string,
      { limit, cursor, outcome = "" }: Paging & { outcome?: string | undefined },
    ): Promise<{ items: ItemRow[]; nextCursor: string }> {
      const wanted = outcomeOf(outcome);
      const row = await find(environmentId, id);
      const size = pageSize(limit);
      const after = cursor ? readNameCursor("cursor", cursor) : "";
      const found = await rows.listItems(store, row, { outcome: wanted, after, limit: size + 1 });
      const { items, nextCursor } = pageOf(found, size, (last) => writeNameCursor(last.run_id));
      return { items, nextCursor: nextCursor ?? "" };
    },
  };
}
