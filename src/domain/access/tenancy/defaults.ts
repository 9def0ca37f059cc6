import type { Clock } from "../../../kit/clock.ts";
import type { Store } from "../../../store/store.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

/**
 * Makes the default org, project and environment, unless they are there. Any number of nodes may do this at
 * once.
 */
export async function createDefaults({ store, clock }: { store: Store; clock: Clock }): Promise<void> {
  if (await rows.environmentById(store, rules.defaultEnvironmentId)) return;
  const at = clock.now();
  await store.write(async (session) => {
    await rows.insertOrg(session, { id: rules.defaultOrgId, name: "Default", at });
    await rows.insertProject(session, {
      id: rules.defaultProjectId,
      orgId: rules.defaultOrgId,
      name: "Default",
      at,
    });
    await rows.insertEnvironment(session, {
      id: rules.defaultEnvironmentId,
      orgId: rules.defaultOrgId,
      projectId: rules.defaultProjectId,
      name: rules.defaultEnvironmentName,
      color: rules.environmentColorDefault,
      tellsFailures: false,
      createdAt: at,
      updatedAt: at,
    });
  });
}
