import { defaultOrgId } from "../domain/access/tenancy/rules.ts";
import { roleIdOf } from "../gate/actions.ts";
import type { Caller } from "../kit/caller.ts";

/** Everyone, with `--dev`. */
export const developer: Caller = {
  kind: "dev",
  id: "dev",
  orgId: defaultOrgId,
  roles: [roleIdOf("admin"), roleIdOf("platform_admin")],
};
