import { roleIdOf } from "../../../gate/actions.ts";
import type { Caller } from "../../../kit/caller.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { type Session, type Store, StoreError } from "../../../store/store.ts";
import type { Deletion } from "./deletion.ts";
import { environmentsMax } from "./limits.ts";
import { holdOrg, oldestProject, shareOrg, shareProject } from "./org-rows.ts";
import type { ListedEnvironment } from "./rows.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export type { ListedEnvironment } from "./rows.ts";

/** The part of keys that an environment's compatibility key needs. */
export interface KeyMaker<Row extends { id: string } = { id: string }> {
  make(wanted: { orgId: string; environmentId: string; name: string; roleIds: readonly string[] }): {
    key: string;
    row: Row;
  };
  insert(session: Session, row: Row): Promise<boolean>;
  /** Answers the hash of the old text. */
  rekey(session: Session, id: string, orgId: string, text: string): Promise<string>;
  hashOf(id: string, session: Session): Promise<string | undefined>;
}

export interface NewEnvironmentInput {
  name: string;
  projectId?: string;
  color?: string;
}

/** What is left out stays. */
export type EnvironmentChange = Partial<Pick<rows.Environment, "name" | "color" | "tellsFailures">>;

/** Environments of an org. Another org's environment looks like none. */
export type Environments = ReturnType<typeof openEnvironments>;

export interface EnvironmentsDeps<Row extends { id: string }> {
  store: Store;
  clock: Clock;
  ids: Ids;
  keys: KeyMaker<Row>;
  deletion: Pick<Deletion, "environment">;
  /** Drops what this node cached of the environment. */
  changed: (environment: rows.Environment) => void;
  forgetEverywhere: (hash: string) => Promise<void>;
}

/** The role that SDKs need. It is weaker than the admin role, so that a rotation gives no new rights. */
const compatRole = "developer";

export function openEnvironments<Row extends { id: string }>(deps: EnvironmentsDeps<Row>) {
  const { store, clock, ids, keys, deletion, changed, forgetEverywhere } = deps;

  function requireShown(caller: Caller, id: string, found: rows.Environment | undefined): rows.Environment {
    if (!found || !(found.projectId === null || found.orgId === caller.orgId))
      throw missing("environment", id);
    return found;
  }

  const find = async (caller: Caller, id: string): Promise<rows.Environment> =>
    requireShown(caller, id, await rows.environmentById(store, id));

  /**
   * Locks and reads the environment. A change without it would undo one that another caller made a moment
   * ago.
   */
  const hold = async (session: Session, caller: Caller, id: string): Promise<rows.Environment> =>
    requireShown(caller, id, await rows.holdEnvironment(session, id));

  const nameTaken = (error: unknown, name: string): unknown =>
    error instanceof StoreError && error.trouble === "unique"
      ? new Fault("already_exists", `environment ${name} already exists`, { field: "name" })
      : error;

  const listed = async (environment: rows.Environment): Promise<ListedEnvironment> => {
    const all = await rows.environmentsOf(store, environment.orgId);
    return all.find((one) => one.id === environment.id) ?? { ...environment, keyPrefix: undefined };
  };

  return {
    list: (caller: Caller, projectId?: string) => rows.environmentsOf(store, caller.orgId, projectId),
    get: async (caller: Caller, id: string) => listed(await find(caller, id)),

    async create(
      { orgId }: Caller,
      { name, projectId, color = rules.environmentColorDefault }: NewEnvironmentInput,
    ) {
      rules.requireEnvironmentName(name);
      rules.requireColor(color);
      try {
        const environment = await store.write(async (session) => {
          // Held, not shared: two calls at once would otherwise both count one less than the limit.
          if (!(await holdOrg(session, orgId))) throw missing("org", orgId);
          if ((await rows.countEnvironments(session, orgId)) >= environmentsMax)
            throw new Fault("resource_exhausted", `at most ${environmentsMax} environments`);
          return addEnvironment(session, { ids, at: clock.now() }, { orgId, name, color, projectId });
        });
        changed(environment);
        return { ...environment, keyPrefix: undefined };
      } catch (error) {
        throw nameTaken(error, name);
      }
    },

    async update(caller: Caller, id: string, change: EnvironmentChange) {
      const { name, color } = change;
      if (name !== undefined) rules.requireEnvironmentName(name);
      if (color !== undefined) rules.requireColor(color);
      const { before, after } = await store
        .write(async (session) => {
          const before = await hold(session, caller, id);
          const after = { ...before, ...change, updatedAt: clock.now() };
          await rows.updateEnvironment(session, after);
          return { before, after };
        })
        .catch((error: unknown) => {
          throw nameTaken(error, name ?? "");
        });
      changed(before);
      changed(after);
      return listed(after);
    },

    async remove(caller: Caller, id: string) {
      await find(caller, id);
      await deletion.environment(id);
    },

    /** Gives the compatibility key of the environment a new text, or creates the key. */
    async rotateKey(caller: Caller, id: string) {
      const { environment, key, before } = await store.write(async (session) => {
        const environment = await hold(session, caller, id);
        const { orgId } = environment;
        const made = keys.make({
          orgId,
          environmentId: id,
          name: `${environment.name} environment`,
          roleIds: [roleIdOf(compatRole)],
        });
        const { key } = made;
        const known = await rows.compatKeyOf(session, id);
        if (known !== undefined && (await keys.hashOf(known, session)) !== undefined)
          return { environment, key, before: await keys.rekey(session, known, orgId, key) };
        await keys.insert(session, made.row);
        await rows.setCompatKey(session, id, made.row.id);
        return { environment, key, before: undefined };
      });
      if (before !== undefined) await forgetEverywhere(before);
      return { environment: await listed(environment), key };
    },
  };
}

/**
 * Inserts an environment with the head of its log, in the named project or the org's oldest. An org without a
 * project gets one: patterns could not name an environment that has none.
 */
export async function addEnvironment(
  session: Session,
  { ids, at }: { ids: Ids; at: number },
  wanted: { orgId: string; name: string; color: string; projectId?: string | undefined },
): Promise<rows.Environment> {
  const { orgId, name, color } = wanted;
  if (!(await shareOrg(session, orgId))) throw missing("org", orgId);
  let { projectId } = wanted;
  if (projectId === undefined) {
    projectId = (await oldestProject(session, orgId))?.id;
    if (projectId === undefined) {
      projectId = ids.next("proj");
      await rows.insertProject(session, { id: projectId, orgId, name: rules.defaultProjectName, at });
    }
  } else if (!(await shareProject(session, projectId, orgId))) throw invalid("project_id", "unknown project");
  const named = { id: ids.next("env"), orgId, projectId, name, color, tellsFailures: false };
  const environment = { ...named, createdAt: at, updatedAt: at };
  await rows.insertEnvironment(session, environment);
  return environment;
}
