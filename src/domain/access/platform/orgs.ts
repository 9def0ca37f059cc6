import { platformOrgId } from "../../../gate/gate.ts";
import { inCamelCase } from "../../../kit/cases.ts";
import { invalid, missing } from "../../../kit/fault.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/row.ts";

export type PlatformOrg = ReturnType<typeof toOrg>;

/** Orgs as the platform sees them, without its own. */
export type PlatformOrgs = ReturnType<typeof openPlatformOrgs>;

/** Creating and deleting an org with everything in it. */
export interface OrgWrites {
  create(name: string): Promise<PlatformOrg>;
  remove(id: string): Promise<void>;
}

type PlatformOrgRow = RowOf<"orgs", "id, name, created_at, updated_at">;

const fields = sql.raw("id, name, created_at, updated_at");

const toOrg = (row: PlatformOrgRow) => inCamelCase(row);

export function openPlatformOrgs({ store, writes }: { store: Store; writes: OrgWrites }) {
  return {
    /** The org's row only: no project, no environment. */
    create: writes.create,

    async get(id: string): Promise<PlatformOrg> {
      const row =
        id === platformOrgId
          ? undefined
          : await store.one<PlatformOrgRow>(sql`SELECT ${fields} FROM orgs WHERE id = ${id}`);
      if (!row) throw missing("org", id);
      return toOrg(row);
    },

    /** Oldest first. */
    async list(): Promise<PlatformOrg[]> {
      const rows = await store.all<PlatformOrgRow>(
        sql`SELECT ${fields} FROM orgs WHERE id <> ${platformOrgId} ORDER BY created_at, id`,
      );
      return rows.map(toOrg);
    },

    async delete(id: string) {
      if (id === platformOrgId) throw invalid("id", `${id} cannot be deleted`);
      await writes.remove(id);
    },
  };
}
