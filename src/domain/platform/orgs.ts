import { platformOrgId } from "../../access/gate.ts";
import type { Clock, Instant } from "../../kit/clock.ts";
import { Fault, missing } from "../../kit/fault.ts";
import type { Ids } from "../../kit/ids.ts";
import { sql } from "../../kit/sql.ts";
import type { Store } from "../../store/store.ts";
import { readOrgName } from "./rules.ts";

export interface Org {
  id: string;
  name: string;
  createdAt: Instant;
  updatedAt: Instant;
}

/** Orgs as the platform sees them. The platform's own is none of them. */
export interface PlatformOrgs {
  /** Oldest first. */
  list(): Promise<Org[]>;
  get(id: string): Promise<Org>;
  /** The org's row only: no project, no environment. */
  create(name: string): Promise<Org>;
  delete(id: string): Promise<void>;
}

interface OrgRow {
  id: string;
  name: string;
  created_at: number;
  updated_at: number;
}

const fields = sql.raw("id, name, created_at, updated_at");

const toOrg = (row: OrgRow): Org => ({
  id: row.id,
  name: row.name,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
});

export function openPlatformOrgs({
  store,
  clock,
  ids,
}: {
  store: Store;
  clock: Clock;
  ids: Ids;
}): PlatformOrgs {
  async function get(id: string): Promise<Org> {
    const row =
      id === platformOrgId
        ? undefined
        : await store.one<OrgRow>(sql`SELECT ${fields} FROM orgs WHERE id = ${id}`);
    if (!row) throw missing("org", id);
    return toOrg(row);
  }

  return {
    get,
    list: async () =>
      (
        await store.all<OrgRow>(
          sql`SELECT ${fields} FROM orgs WHERE id <> ${platformOrgId} ORDER BY created_at, id`,
        )
      ).map(toOrg),

    async create(name) {
      const at = clock.now();
      const org: Org = { id: ids.next("org"), name: readOrgName(name), createdAt: at, updatedAt: at };
      await store.write((session) =>
        session.run(sql`INSERT INTO orgs (${fields}) VALUES (${org.id}, ${org.name}, ${at}, ${at})`),
      );
      return org;
    },

    async delete(id) {
      if (id === platformOrgId)
        throw new Fault("invalid_argument", "the platform's own org cannot be deleted");
      await store.write(async (session) => {
        const { holdRow } = session.seams;
        const held = await session.one(sql`SELECT id FROM orgs WHERE id = ${id} ${holdRow}`);
        if (!held) throw missing("org", id);
        // What runs in its environments must end before them: that is another deletion than of rows.
        if (await session.one(sql`SELECT id FROM environments WHERE org_id = ${id} LIMIT 1`))
          throw new Fault("failed_precondition", "the org has environments: delete them first");
        const policiesOf = sql`SELECT id FROM policies WHERE org_id = ${id}`;
        await session.run(sql`DELETE FROM policy_versions WHERE policy_id IN (${policiesOf})`);
        for (const table of ["role_policies", "policies", "roles", "api_keys", "users", "projects"])
          await session.run(sql`DELETE FROM ${sql.raw(table)} WHERE org_id = ${id}`);
        await session.run(sql`DELETE FROM orgs WHERE id = ${id}`);
      });
    },
  };
}
