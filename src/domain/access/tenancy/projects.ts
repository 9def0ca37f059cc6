import { requireStorable } from "../../../kit/event-names.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { Deletion } from "./deletion.ts";
import { projectNameCharsMax, projectsMax } from "./limits.ts";
import type { Project } from "./org-rows.ts";
import * as rows from "./org-rows.ts";
import { environmentsOf, insertProject } from "./rows.ts";
import * as rules from "./rules.ts";

/** Projects of an org. A project of another org looks like none. */
export type Projects = ReturnType<typeof openProjects>;

export interface ProjectsDeps extends Basics<"store" | "clock" | "ids"> {
  deletion: Pick<Deletion, "project">;
}

export function openProjects({ store, clock, ids, deletion }: ProjectsDeps) {
  async function holdProject(session: Session, orgId: string, id: string): Promise<Project> {
    const project = await rows.holdProject(session, id);
    if (project?.orgId !== orgId) throw missing("project", id);
    return project;
  }

  return {
    projects: (orgId: string) => rows.projectsOf(store, orgId),

    async createProject(orgId: string, { name, description }: { name: string; description?: string }) {
      requireStorable("description", description);
      const at = clock.now();
      const label = rules.readLabel("name", name, projectNameCharsMax);
      const id = ids.next("proj");
      const project: Project = { id, orgId, name: label, description, createdAt: at, updatedAt: at };
      await store.write(async (session) => {
        // Held, not shared: two calls at once would otherwise both count one project less than the limit.
        if (!(await rows.holdOrg(session, orgId))) throw missing("org", orgId);
        if ((await rows.countProjects(session, orgId)) >= projectsMax)
          throw new Fault("resource_exhausted", `at most ${projectsMax} projects`);
        await insertProject(session, { ...project, at });
      });
      return project;
    },

    async updateProject(
      orgId: string,
      id: string,
      { name, description }: { name?: string; description?: string },
    ) {
      requireStorable("description", description);
      const change = {
        ...(name !== undefined && { name: rules.readLabel("name", name, projectNameCharsMax) }),
        ...(description !== undefined && { description }),
      };
      return store.write(async (session) => {
        const after: Project = {
          ...(await holdProject(session, orgId, id)),
          ...change,
          updatedAt: clock.now(),
        };
        await rows.updateProject(session, after);
        return after;
      });
    },

    async removeProject(orgId: string, id: string) {
      await deletion.project(id, orgId);
    },

    /** Ids of the environments that go with the project. */
    environmentsIn: async (orgId: string, projectId: string) =>
      (await environmentsOf(store, orgId, projectId)).map(({ id }) => id),
  };
}
