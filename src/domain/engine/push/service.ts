import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { Assignments } from "../dispatch/assignments.ts";
import { JobCalls, type JobCallsDeps } from "./job-calls.ts";
import { CallSlots, ServedFunction } from "./served-function.ts";

/** Push functions that one node serves. */
export const pushFunctionsMax = 10_000;

interface PushFunctionRow {
  environment_id: string;
  id: string;
  version: number;
}

/**
 * Active functions in push mode, `pushFunctionsMax` at most: the first function of every environment, then
 * the second of every environment, and so on. One environment with very many functions does not displace
 * those of the others.
 */
const listPushFunctions = (store: Store): Promise<PushFunctionRow[]> =>
  store.all<PushFunctionRow>(
    sql`SELECT environment_id, id, version FROM (SELECT environment_id, id, version,
          row_number() OVER (PARTITION BY environment_id ORDER BY id) AS nth
        FROM functions WHERE mode = 'push' AND status = 'active'
          AND EXISTS (SELECT 1 FROM heads h WHERE h.environment_id = functions.environment_id)) f
      ORDER BY nth, environment_id, id LIMIT ${pushFunctionsMax}`,
  );

export interface PushDeps extends Omit<JobCallsDeps, "onOpened"> {
  store: Store;
  /** Calls of this node at once. */
  callsMax: number;
  /** Part of the worker id that this node holds leases with. */
  nodeId: string;
  assignments: Pick<Assignments, "toPush">;
}

/**
 * Runs of functions in push mode: this node takes their jobs as a worker would, and calls their endpoints.
 */
export function openPush(deps: PushDeps) {
  const { store, log, definitionAt } = deps;
  const served = new Map<string, ServedFunction>();
  let draining = false;
  const slots = new CallSlots(deps.callsMax);
  const calls = new JobCalls({
    ...deps,
    onOpened: ({ environmentId, functionId }) => served.get(`${environmentId}\n${functionId}`)?.endPoll(),
  });
  const servedDeps = { ...deps, workerId: `push-${deps.nodeId}`, slots, calls };

  /** Undefined for a function that was deleted since it was listed: the next look does not list it. */
  const endpointUrlOf = ({ environment_id, id, version }: PushFunctionRow): Promise<string | undefined> =>
    definitionAt(environment_id, id, version).then(
      ({ endpointUrl = "" }) => endpointUrl,
      (error) => {
        log.warn("push.unread", { functionId: id, error });
        return undefined;
      },
    );

  /**
   * The function is still served at its endpoint. Reads its definition only when the version is a new one.
   */
  async function isCurrent(one: ServedFunction, row: PushFunctionRow | undefined): Promise<boolean> {
    if (!row) return false;
    if (row.version !== one.version && (await endpointUrlOf(row)) !== one.endpointUrl) return false;
    one.version = row.version;
    return true;
  }

  return {
    /**
     * The tick of loop `push.look`: begins and ends to serve functions, as they are registered, changed and
     * deleted.
     */
    async lookOnce() {
      if (draining) return;
      const rows = await listPushFunctions(store);
      const wanted = new Map(rows.map((row) => [`${row.environment_id}\n${row.id}`, row]));
      for (const [key, one] of served) {
        if (await isCurrent(one, wanted.get(key))) continue;
        one.stop();
        served.delete(key);
        slots.wakeAll();
      }
      for (const [key, row] of wanted) {
        if (served.has(key)) continue;
        const endpointUrl = await endpointUrlOf(row);
        if (draining) return;
        if (endpointUrl === undefined) continue;
        const endpoint = { environmentId: row.environment_id, functionId: row.id, endpointUrl };
        const one = new ServedFunction(endpoint, row.version, servedDeps);
        served.set(key, one);
        one.start();
      }
    },

    /** Takes no further job; resolves once no call is under way. */
    async drain() {
      draining = true;
      const all = [...served.values()];
      for (const one of all) one.stop();
      served.clear();
      slots.wakeAll();
      await Promise.all([...all.map((one) => one.stopped()), calls.settled()]);
    },
  };
}
