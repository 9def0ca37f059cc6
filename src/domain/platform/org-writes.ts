import { platformOrgId } from "../../access/gate.ts";
import type { Clock } from "../../kit/clock.ts";
import { Fault, invalid, missing } from "../../kit/fault.ts";
import type { Ids } from "../../kit/ids.ts";
import { sql } from "../../kit/sql.ts";
import type { Store } from "../../store/store.ts";
import { defaultOrgId } from "../tenancy/rules.ts";
import type { Org, OrgWrites } from "./orgs.ts";
import { readOrgName } from "./rules.ts";

/** Rows alone: an org that has environments is refused, as what runs in them must end first. */
export function orgRowWrites({ store, clock, ids }: { store: Store; clock: Clock; ids: Ids }): OrgWrites {
  return {
    async create(name) {
      const at = clock.now();
      const org: Org = { id: ids.next("org"), name: readOrgName(name), createdAt: at, updatedAt: at };
      await store.write((session) =>
        session.run(
          sql`INSERT INTO orgs (id, name, created_at, updated_at) VALUES (${org.id}, ${org.name}, ${at}, ${at})`,
        ),
      );
      return org;
    },

    async remove(id) {
      if (id === defaultOrgId || id === platformOrgId) throw invalid("id", `${id} cannot be deleted`);
      await store.write(async (session) => {
        const { holdRow } = session.seams;
        const held = await session.one(sql`SELECT id FROM orgs WHERE id = ${id} ${holdRow}`);
        if (!held) throw missing("org", id);
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
