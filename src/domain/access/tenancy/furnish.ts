import type { Basics, Session } from "../../../store/store.ts";
import { addEnvironment } from "./environments.ts";
import { orgNameCharsMax, projectNameCharsMax } from "./limits.ts";
import * as orgRows from "./org-rows.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

/** An org that a config file names, with what is in it. */
export interface WantedOrg {
  name: string;
  projects: readonly { name: string; environments: readonly { name: string }[] }[];
}

export type FurnishDeps = Basics<"store" | "clock" | "ids">;

/** Makes the orgs, projects and environments that are not there by their names: all of them or none. */
export async function furnish(deps: FurnishDeps, wanted: readonly WantedOrg[]): Promise<void> {
  if (wanted.length === 0) return;
  await deps.store.write(async (session) => {
    // Two nodes that start at once wait for each other here: they would make each org twice.
    await orgRows.holdOrg(session, rules.defaultOrgId);
    for (const org of wanted) await furnishOrg(deps, session, org);
  });
}

async function furnishOrg({ clock, ids }: FurnishDeps, session: Session, wanted: WantedOrg): Promise<void> {
  const at = clock.now();
  const name = rules.readLabel("name", wanted.name, orgNameCharsMax);
  const orgId = (await orgRows.orgNamed(session, name))?.id ?? ids.next("org");
  await rows.insertOrg(session, { id: orgId, name, at });
  const known = new Map((await orgRows.projectsOf(session, orgId)).map((one) => [one.name, one.id]));
  for (const { name: text, environments } of wanted.projects) {
    const label = rules.readLabel("name", text, projectNameCharsMax);
    const projectId = known.get(label) ?? ids.next("proj");
    known.set(label, projectId);
    await rows.insertProject(session, { id: projectId, orgId, name: label, at });
    for (const environment of environments) {
      rules.requireEnvironmentName(environment.name);
      if (await rows.environmentByName(session, orgId, environment.name)) continue;
      const color = rules.environmentColorDefault;
      await addEnvironment(session, { ids, at }, { orgId, projectId, name: environment.name, color });
    }
  }
}
