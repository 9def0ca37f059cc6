import { platformOrgId } from "../../../gate/gate.ts";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { invalid, missing } from "../../../kit/fault.ts";
import { keyLeaseMs } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Basics, Session } from "../../../store/store.ts";
import * as rows from "./deletion-rows.ts";
import { holdOrg, holdProject, holdProjectsOf } from "./org-rows.ts";
import * as rules from "./rules.ts";

/** A lifecycle frame: a hint to subscribers, which may be lost. */
export interface EnvironmentFrame {
  environmentId: string;
  /** `system.environment.{id}.deleted`. */
  topic: `system.environment.${string}`;
  payload: { id: string; name: string; projectId: string | null; timestamp: string };
}

export type Deletion = ReturnType<typeof openDeletion>;

export interface DeletionDeps extends Basics<"store" | "clock"> {
  /** Drops what this node cached of these environments, and ends the calls that wait in them. */
  onGone: (environments: readonly rows.DeletedEnvironment[]) => void;
  /** Tells the other nodes; may be lost. */
  publishHint: (environments: readonly rows.DeletedEnvironment[]) => void;
  /** Best effort, after the commit. */
  onFrame: (frame: EnvironmentFrame) => void;
  /** Drops the cached keys with these hashes. */
  forgetKeys: (hashes: readonly string[]) => void;
  /** Resolves once no node accepts the key any more, within `keyLeaseMs`. */
  forgetEverywhere: (hash: string) => Promise<void>;
}

/** `followOnce` looks back this far: a deletion may commit later than its timestamp says. */
const lookBackMs = 60_000;
/** The frame of a deletion reaches other nodes sooner than that. */
const frameMs = 500;
/** After this a node has taken notice of a deletion, by its hint or by `followOnce`. */
const goingMs = 5_000;
const noticedMax = 100_000;
const hintedMax = 100;
const keysAtOnce = 16;

/** Locks go from the top: the org, its projects, their environments, then the rows in these. */
export function openDeletion(deps: DeletionDeps) {
  const { store, clock } = deps;
  const noticed = new Set<string>();

  function notice(environments: readonly rows.DeletedEnvironment[]): void {
    const news = environments.filter((one) => !noticed.has(one.id));
    if (news.length === 0) return;
    for (const { id } of news) noticed.add(id);
    for (const id of noticed) {
      if (noticed.size <= noticedMax) break;
      noticed.delete(id);
    }
    deps.onGone(news);
  }

  /**
   * A node that misses the hint drops the key from its cache after `keyLeaseMs`: waiting longer gains
   * nothing.
   */
  async function forgetKeys(hashes: readonly string[]): Promise<void> {
    deps.forgetKeys(hashes);
    const beganAt = clock.elapsed();
    for (let from = 0; from < hashes.length; from += keysAtOnce) {
      if (clock.elapsed() - beganAt >= keyLeaseMs) return;
      await Promise.all(hashes.slice(from, from + keysAtOnce).map(deps.forgetEverywhere));
    }
  }

  async function remove(
    work: (
      session: Session,
      at: Instant,
    ) => Promise<{ environments: rows.DeletedEnvironment[]; keyHashes: string[] }>,
  ): Promise<void> {
    const at = clock.now();
    const { environments, keyHashes } = await store.write((session) => work(session, at));
    // Frames go first: the hint ends the subscriptions of an environment at every node.
    for (const { id, name, projectId } of environments) {
      const payload = { id, name, projectId, timestamp: rfc3339(at) };
      deps.onFrame({ environmentId: id, topic: `system.environment.${id}.deleted`, payload });
    }
    notice(environments);
    for (let from = 0; from < environments.length; from += hintedMax)
      deps.publishHint(environments.slice(from, from + hintedMax));
    await forgetKeys(keyHashes);
  }

  return {
    /** The hint of another node that it deleted some. */
    onDeletedElsewhere: notice,
    /**
     * Whether the environment was deleted a moment ago and this node has not noticed it yet. The frame of the
     * deletion is then on its way: subscribers get it before their connections end.
     */
    async isGoing(id: string): Promise<boolean> {
      if (noticed.has(id)) return false;
      const at = await rows.deletedAt(store, id);
      return at !== undefined && at > clock.now() - goingMs;
    },
    /** The tick of loop `tenancy.follow`: reads what other nodes deleted, in case their hints were lost. */
    async followOnce() {
      const now = clock.now();
      notice(await rows.deletedWithin(store, now - lookBackMs, now - frameMs));
    },

    environment: (id: string) =>
      remove(async (session, at) => {
        if (id === rules.defaultEnvironmentId)
          throw invalid("id", "the default environment cannot be deleted");
        const gone = await rows.deleteEnvironments(session, sql`id = ${id}`, at);
        if (gone.environments.length === 0) throw missing("environment", id);
        return gone;
      }),

    /** Deletes the project with its environments; another org's project looks like none. */
    project: (id: string, orgId: string) =>
      remove(async (session, at) => {
        if ((await holdProject(session, id))?.orgId !== orgId) throw missing("project", id);
        if (id === rules.defaultProjectId) throw invalid("id", "the default project cannot be deleted");
        const gone = await rows.deleteEnvironments(session, sql`project_id = ${id}`, at);
        if (gone.environments.some((one) => one.id === rules.defaultEnvironmentId))
          throw invalid("id", "the project of the default environment cannot be deleted");
        await rows.deleteProject(session, id);
        return gone;
      }),

    /** Deletes the org with everything it has. */
    org: (id: string) =>
      remove(async (session, at) => {
        if (id === rules.defaultOrgId || id === platformOrgId) throw invalid("id", `${id} cannot be deleted`);
        if (!(await holdOrg(session, id))) throw missing("org", id);
        await holdProjectsOf(session, id);
        const { environments, keyHashes } = await rows.deleteEnvironments(session, sql`org_id = ${id}`, at);
        return { environments, keyHashes: [...keyHashes, ...(await rows.deleteOrg(session, id, at))] };
      }),
  };
}
