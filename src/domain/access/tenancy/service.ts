import type { Clock } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import { type Basics, type Session, type Store, StoreError } from "../../../store/store.ts";
import { shareOrg, shareProject } from "./org-rows.ts";
import * as rows from "./rows.ts";
import { type Environment, environmentById, environmentByName, oldestEnvironment, orgById } from "./rows.ts";
import * as rules from "./rules.ts";

/** A changed or deleted environment is noticed after this at the latest. */
const environmentLeaseMs = 500;
const environmentsRemembered = 10_000;
const nameKey = (orgId: string, name: string) => `${orgId} ${name}`;

/** What this node knows of orgs and environments, each answer for `environmentLeaseMs`. */
function openLookups({ store, clock }: { store: Store; clock: Clock }) {
  const lease = { clock, keptMs: environmentLeaseMs, entriesMax: environmentsRemembered };
  const byId = ttlCache<Environment>({ ...lease, read: (id) => environmentById(store, id) });
  const byName = ttlCache<Environment>({
    ...lease,
    read(key) {
      const space = key.indexOf(" ");
      return environmentByName(store, key.slice(0, space), key.slice(space + 1));
    },
  });
  const orgs = ttlCache<{ id: string }>({ ...lease, read: (id) => orgById(store, id) });
  const homes = ttlCache<Environment>({ ...lease, read: (orgId) => oldestEnvironment(store, orgId) });

  return {
    /** Name and project of an environment; undefined when it is gone. */
    environment: byId.get,
    environmentNamed: (orgId: string, name: string) => byName.get(nameKey(orgId, name)),
    org: orgs.get,
    /** The oldest environment of the org. */
    home: homes.get,

    /** The environment is new: this node may have noted that there is none. */
    forgetMissing({ id, orgId, name }: Pick<Environment, "id" | "orgId" | "name">): void {
      byId.forget(id);
      byName.forget(nameKey(orgId, name));
    },
    /** Drops what this node cached of these environments. */
    forget(environments: readonly Pick<Environment, "id" | "orgId" | "name">[]): void {
      for (const { id, orgId, name } of environments) {
        byId.forget(id);
        byName.forget(nameKey(orgId, name));
        homes.forget(orgId);
      }
    },
    /** The same for an org. */
    forgetOrg(orgId: string): void {
      orgs.forget(orgId);
      homes.forget(orgId);
    },
  };
}

/**
 * Makes the default org, project and environment, unless they are there. Any number of nodes may do this at
 * once.
 */
async function createDefaults({ store, clock }: { store: Store; clock: Clock }): Promise<void> {
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

export type { Environment } from "./rows.ts";

export interface TenancyOptions extends Basics<"store" | "clock" | "ids" | "log"> {
  /** Refuse an environment name that does not resolve instead of falling back. */
  strictEnvironment: boolean;
}

export interface NewEnvironment {
  orgId: string;
  name: string;
  projectId?: string;
  color?: string;
}

export type Tenancy = ReturnType<typeof tenancy>;

/** Each unknown name is logged once, up to this many names: a log line a request would fill the disk. */
const fallbackNamesLogged = 1_000;

/** The same as `Tenancy.shareOrg` for an environment; the lock needs no more than its transaction. */
export async function shareEnvironment(session: Session, environmentId: string): Promise<void> {
  if (!(await rows.shareEnvironment(session, environmentId))) throw missing("environment", environmentId);
}

export function tenancy({ store, clock, ids, log, strictEnvironment }: TenancyOptions) {
  const lookups = openLookups({ store, clock });
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
    const environment = await lookUp(lookups.environment(rules.defaultEnvironmentId));
    if (!environment) throw new Error(`${rules.defaultEnvironmentId} is missing`);
    return environment;
  };

  const environmentMeant = async (selector: string, orgId: string): Promise<Environment> => {
    if (rules.isEnvironmentId(selector)) {
      const environment = await lookUp(lookups.environment(selector));
      // Another org's environment looks like none; the default one may be known to all.
      const isShown =
        orgId === "" || environment?.orgId === orgId || environment?.id === rules.defaultEnvironmentId;
      if (!environment || !isShown) throw rules.unknownEnvironment();
      return environment;
    }
    const named = rules.isEnvironmentName(selector)
      ? await lookUp(lookups.environmentNamed(orgId, selector))
      : undefined;
    return named ?? fallBack(selector);
  };

  const resolveEnvironment = async (selector: string | undefined, orgId: string): Promise<string> => {
    const environment = await environmentMeant(selector ?? rules.defaultEnvironmentId, orgId);
    if (environment.orgId === orgId) return environment.id;
    // The fallback is an environment of the default org: callers of other orgs are refused.
    throw selector !== undefined && rules.isEnvironmentId(selector)
      ? rules.unknownEnvironment()
      : rules.noEnvironmentScope();
  };

  return {
    /**
     * The environment that `X-Svc-Environment` or `env` names, for a caller of this org. An empty org is the
     * platform's, to which no id is foreign. Whether the caller may use the environment is decided elsewhere.
     */
    environmentMeant,
    findEnvironment: lookups.environment,
    forget: lookups.forget,
    forgetOrg: lookups.forgetOrg,
    /** Cached for half a second. */
    orgExists: async (orgId: string) => (await lookups.org(orgId)) !== undefined,

    /**
     * Locks the org against deletion until the transaction ends; `not_found` when it is gone. Everything that
     * creates rows under an org, or changes rights in it, begins so. Deletions lock the org before its
     * environments; a transaction that locks both must keep that order, or the two wait for each other.
     */
    async shareOrg(session: Session, orgId: string) {
      if (!(await shareOrg(session, orgId))) throw missing("org", orgId);
    },

    shareEnvironment,

    /**
     * Like `resolveEnvironment`; without a selector, an org other than the default gets its oldest, or empty.
     */
    async homeEnvironment(selector: string | undefined, orgId: string): Promise<string> {
      if (selector !== undefined || orgId === rules.defaultOrgId) return resolveEnvironment(selector, orgId);
      return (await lookups.home(orgId))?.id ?? "";
    },

    /** Like `environmentMeant`, within the org; `env_default` when nothing is selected. */
    resolveEnvironment,

    /**
     * Makes the default org, project and environment, unless they exist. Any number of nodes may do this at
     * once.
     */
    createDefaults: () => createDefaults({ store, clock }),

    async createEnvironment({ orgId, name, projectId, color }: NewEnvironment): Promise<Environment> {
      rules.requireEnvironmentName(name);
      const at = clock.now();
      const environment: Environment = {
        id: ids.next("env"),
        orgId,
        projectId: projectId ?? (orgId === rules.defaultOrgId ? rules.defaultProjectId : null),
        name,
        color: color ?? rules.environmentColorDefault,
        tellsFailures: false,
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
      lookups.forgetMissing(environment);
      return environment;
    },
  };
}
