import type { Clock } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Log } from "../../../kit/log.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import { type Session, type Store, StoreError } from "../../../store/store.ts";
import { shareOrg, shareProject } from "./org-rows.ts";
import type { Environment } from "./rows.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export type { Environment } from "./rows.ts";

export interface TenancyOptions {
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  /** Refuse an environment name that does not resolve instead of falling back. */
  strictEnvironment: boolean;
}

export interface NewEnvironment {
  orgId: string;
  name: string;
  projectId?: string;
  color?: string;
}

export interface Tenancy {
  /** Like `resolveEnvironment`; without a selector, an org other than the default gets its oldest, or empty. */
  homeEnvironment(selector: string | undefined, orgId: string): Promise<string>;
  /** Believed for half a second. */
  orgExists(orgId: string): Promise<boolean>;
  /** The default org, project and environment, unless they are there. Any number of nodes may do this at once. */
  createDefaults(): Promise<void>;
  createEnvironment(wanted: NewEnvironment): Promise<Environment>;
  /**
   * The environment that `X-Svc-Environment` or `env` names (proto/README.md 'Environment selection'), for a
   * caller of this org, empty for the platform's, to whom no id is foreign; whether the caller may use it is
   * not asked here.
   */
  environmentMeant(selector: string, orgId: string): Promise<Environment>;
  /** What is believed of these environments is looked up anew. */
  forget(environments: readonly Pick<Environment, "id" | "orgId" | "name">[]): void;
  /** The same of an org. */
  forgetOrg(orgId: string): void;
  /** Name and project of an environment; undefined when it is gone. */
  findEnvironment(environmentId: string): Promise<Environment | undefined>;
  /**
   * Begins whatever is made under an org, or changes what its people may do: the org stays until the transaction ends, and
   * an org that is gone is `not_found`. Where both are shared, the org comes before the environment, as in a deletion.
   */
  shareOrg(session: Session, orgId: string): Promise<void>;
  /** The same of an environment. */
  shareEnvironment(session: Session, environmentId: string): Promise<void>;
  /** Like `environmentMeant`, limited to environments of the org; `env_default` when nothing is selected. */
  resolveEnvironment(selector: string | undefined, orgId: string): Promise<string>;
}

/** A changed or deleted environment is noticed after this at the latest. */
const environmentLeaseMs = 500;
const environmentsRemembered = 10_000;
/** Names that fell back are logged once each; after so many different ones, no more. */
const fallbackNamesLogged = 1_000;

export function tenancy({ store, clock, ids, log, strictEnvironment }: TenancyOptions): Tenancy {
  const lease = { clock, keptMs: environmentLeaseMs, entriesMax: environmentsRemembered };
  const byId = ttlCache<Environment>({ ...lease, read: (id) => rows.environmentById(store, id) });
  const nameKey = (orgId: string, name: string) => `${orgId} ${name}`;
  const byName = ttlCache<Environment>({
    ...lease,
    read(key) {
      const space = key.indexOf(" ");
      return rows.environmentByName(store, key.slice(0, space), key.slice(space + 1));
    },
  });
  const orgs = ttlCache<{ id: string }>({ ...lease, read: (id) => rows.orgById(store, id) });
  const homes = ttlCache<Environment>({ ...lease, read: (orgId) => rows.oldestEnvironment(store, orgId) });
  const fallenBack = new Set<string>();

  const lookUp = async (answer: Promise<Environment | undefined>): Promise<Environment | undefined> => {
    try {
      return await answer;
    } catch (cause) {
      log.error("environment.lookup_failed", { error: cause });
      throw new Fault("internal", "environment lookup failed", { cause });
    }
  };

  const fallBack = async (name: string): Promise<Environment> => {
    if (strictEnvironment) throw rules.unknownEnvironment();
    if (fallenBack.size < fallbackNamesLogged && !fallenBack.has(name)) {
      fallenBack.add(name);
      log.warn("environment.fell_back", { name: name.slice(0, 100), to: rules.defaultEnvironmentId });
    }
    const environment = await lookUp(byId.get(rules.defaultEnvironmentId));
    if (!environment) throw new Error(`${rules.defaultEnvironmentId} is missing`);
    return environment;
  };

  const environmentMeant: Tenancy["environmentMeant"] = async (selector, orgId) => {
    if (rules.isEnvironmentId(selector)) {
      const environment = await lookUp(byId.get(selector));
      // Another org's looks like none; the default one is no secret.
      const isShown =
        orgId === "" || environment?.orgId === orgId || environment?.id === rules.defaultEnvironmentId;
      if (!environment || !isShown) throw rules.unknownEnvironment();
      return environment;
    }
    const named = rules.isEnvironmentName(selector)
      ? await lookUp(byName.get(nameKey(orgId, selector)))
      : undefined;
    return named ?? fallBack(selector);
  };

  const resolveEnvironment: Tenancy["resolveEnvironment"] = async (selector, orgId) => {
    const environment = await environmentMeant(selector ?? rules.defaultEnvironmentId, orgId);
    if (environment.orgId === orgId) return environment.id;
    // The fallback belongs to the default org; nobody else slips into it. A stranger's id looks like none.
    throw selector !== undefined && rules.isEnvironmentId(selector)
      ? rules.unknownEnvironment()
      : rules.noEnvironmentScope();
  };

  return {
    environmentMeant,
    findEnvironment: (environmentId) => byId.get(environmentId),
    forget(environments) {
      for (const { id, orgId, name } of environments) {
        byId.forget(id);
        byName.forget(nameKey(orgId, name));
        homes.forget(orgId);
      }
    },
    forgetOrg(orgId) {
      orgs.forget(orgId);
      homes.forget(orgId);
    },
    orgExists: async (orgId) => (await orgs.get(orgId)) !== undefined,

    async shareOrg(session, orgId) {
      if (!(await shareOrg(session, orgId))) throw missing("org", orgId);
    },

    async shareEnvironment(session, environmentId) {
      if (!(await rows.shareEnvironment(session, environmentId))) throw missing("environment", environmentId);
    },

    async homeEnvironment(selector, orgId) {
      if (selector !== undefined || orgId === rules.defaultOrgId) return resolveEnvironment(selector, orgId);
      return (await homes.get(orgId))?.id ?? "";
    },

    resolveEnvironment,

    async createDefaults() {
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
          createdAt: at,
          updatedAt: at,
        });
      });
    },

    async createEnvironment({ orgId, name, projectId, color = rules.environmentColorDefault }) {
      rules.requireEnvironmentName(name);
      const at = clock.now();
      const environment: Environment = {
        id: ids.next("env"),
        orgId,
        projectId: projectId ?? (orgId === rules.defaultOrgId ? rules.defaultProjectId : null),
        name,
        color,
        createdAt: at,
        updatedAt: at,
      };
      try {
        await store.write(async (session) => {
          if (projectId !== undefined && !(await shareProject(session, projectId, orgId)))
            throw invalid("project_id", "unknown project");
          await rows.insertEnvironment(session, environment);
        });
      } catch (error) {
        if (error instanceof StoreError && error.trouble === "unique") {
          throw new Fault("already_exists", `environment ${name} already exists`, { field: "name" });
        }
        throw error;
      }
      byId.forget(environment.id);
      byName.forget(nameKey(orgId, name));
      return environment;
    },
  };
}
