import { roleIdOf } from "../../../gate/actions.ts";
import { platformOrgId } from "../../../gate/gate.ts";
import type { Clock } from "../../../kit/clock.ts";
import { requireStorable } from "../../../kit/event-names.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import type { Deletion } from "./deletion.ts";
import { addEnvironment, type KeyMaker } from "./environments.ts";
import { orgNameCharsMax, projectNameCharsMax, projectsMax } from "./limits.ts";
import type { Org, Preferences, Project, Tenant } from "./org-rows.ts";
import * as rows from "./org-rows.ts";
import { environmentsOf, insertOrg, insertProject } from "./rows.ts";
import * as rules from "./rules.ts";

/** Projects of an org. A project of another org looks like none. */
type Projects = ReturnType<typeof openProjects>;

export interface ProjectsDeps extends Basics<"store" | "clock" | "ids"> {
  deletion: Pick<Deletion, "project">;
}

function openProjects({ store, clock, ids, deletion }: ProjectsDeps) {
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

export interface Provisioned {
  org: Org;
  environment: { id: string; name: string };
  key: string;
  /** Names of the roles that the key carries. */
  roles: string[];
}

/** Orgs and their projects. `orgId` is the caller's: another org looks like none. */
export interface Orgs extends Projects {
  create(name: string): Promise<Org>;
  get(orgId: string, id: string): Promise<Org>;
  update(orgId: string, id: string, change: { name?: string; preferences?: Preferences }): Promise<Org>;
  remove(orgId: string, id: string): Promise<void>;
  /** Creates an org, a project, an environment and an admin key in one transaction. */
  provision(wanted: { orgName: string; environmentName?: string }): Promise<Provisioned>;
  /** Every org but the platform's own. */
  tenants(): Promise<Tenant[]>;
}

export interface OrgsDeps<Row extends { id: string }> {
  store: Store;
  clock: Clock;
  ids: Ids;
  keys: Pick<KeyMaker<Row>, "make" | "insert">;
  deletion: Pick<Deletion, "org" | "project">;
  /** Drops what this node cached of the org. */
  changed: (orgId: string) => void;
}

const adminRole = "admin";

export function openOrgs<Row extends { id: string }>(deps: OrgsDeps<Row>): Orgs {
  const { store, clock, ids, keys, deletion, changed } = deps;

  async function find(orgId: string, id: string): Promise<Org> {
    const org = id === orgId ? await rows.getOrg(store, id) : undefined;
    if (!org) throw missing("org", id);
    return org;
  }

  const newOrg = (field: string, name: string): Org => {
    const at = clock.now();
    return {
      id: ids.next("org"),
      name: rules.readLabel(field, name, orgNameCharsMax),
      preferences: undefined,
      createdAt: at,
      updatedAt: at,
    };
  };

  return {
    async create(name) {
      const org = newOrg("name", name);
      await store.write((session) => insertOrg(session, { ...org, at: org.createdAt }));
      changed(org.id);
      return org;
    },

    get: find,

    async update(orgId, id, { name, preferences }) {
      const timezone = preferences?.default_timezone;
      if (timezone !== undefined) rules.requireTimezone("preferences.default_timezone", timezone);
      const change = {
        ...(name !== undefined && { name: rules.readLabel("name", name, orgNameCharsMax) }),
        ...(preferences !== undefined && { preferences }),
      };
      return store.write(async (session) => {
        const before = id === orgId ? await rows.holdOrg(session, id) : undefined;
        if (!before) throw missing("org", id);
        const after: Org = { ...before, ...change, updatedAt: clock.now() };
        await rows.updateOrg(session, after);
        return after;
      });
    },

    async remove(orgId, id) {
      await find(orgId, id);
      await deletion.org(id);
      changed(id);
    },

    async provision({ orgName, environmentName = rules.defaultEnvironmentName }) {
      const org = newOrg("org_name", orgName);
      rules.requireEnvironmentName(environmentName, "env_name");
      const at = org.createdAt;
      const made = await store.write(async (session) => {
        await insertOrg(session, { ...org, at });
        const environment = await addEnvironment(
          session,
          { ids, at },
          { orgId: org.id, name: environmentName, color: rules.environmentColorDefault },
        );
        const { key, row } = keys.make({
          orgId: org.id,
          environmentId: environment.id,
          name: "Admin",
          roleIds: [roleIdOf(adminRole)],
        });
        await keys.insert(session, row);
        return { environment, key };
      });
      changed(org.id);
      return { org, ...made, roles: [adminRole] };
    },

    tenants: () => rows.tenantsBut(store, platformOrgId),
    ...openProjects({ store, clock, ids, deletion }),
  };
}
