import { missing } from "../../../kit/fault.ts";
import { pageOf, pageSize, readCursor, timeBound, writeCursor } from "../../../kit/page.ts";
import type { Store } from "../../../store/store.ts";
import * as rows from "./rows.ts";

export type { ErrorGroupRow } from "./rows.ts";

export interface ListGroupsInput {
  functionId?: string;
  since?: string;
  limit?: number;
  cursor?: string;
}

/** Groups of failures that look alike; the flush that ends a run counts it. */
export type ErrorGroups = ReturnType<typeof openErrorGroups>;

export const openErrorGroups = (store: Store) => ({
  async list(
    environmentId: string,
    { functionId, since, limit, cursor }: ListGroupsInput,
  ): Promise<{ groups: rows.ErrorGroupRow[]; nextCursor: string | undefined }> {
    const filter = {
      environmentId,
      functionId: functionId || undefined,
      since: timeBound("since", since),
    };
    const size = pageSize(limit);
    const after = cursor ? readCursor("cursor", cursor) : undefined;
    const found = await rows.listGroups(store, filter, { after, limit: size + 1 });
    const { items, nextCursor } = pageOf(found, size, ({ last_seen_at: at, id }) => writeCursor({ at, id }));
    return { groups: items, nextCursor };
  },

  async get(environmentId: string, id: string): Promise<rows.ErrorGroupRow> {
    const group = await rows.getGroup(store, environmentId, id);
    if (!group) throw missing("error group", id);
    return group;
  },
});
