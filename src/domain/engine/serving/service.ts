import type { Instant } from "../../../kit/clock.ts";
import { workerSilenceMsMax } from "../../../kit/limits.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import { column, sql } from "../../../kit/sql.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import type { Basics, Store } from "../../../store/store.ts";
import {
  conflictsToldMax,
  servingAskedMs,
  servingFreshMs,
  servingKnownMs,
  servingListsMax,
  servingPlacesMax,
  servingSliceMax,
  unservedToldMs,
} from "./limits.ts";

/**
 * What workers seen since then serve, by environment: functions, and the hashes of their definitions if
 * workers send them. Environments with more different lists than `servingListsMax` are left out.
 */
async function servedLists(
  store: Store,
  environmentIds: readonly string[],
  since: Instant,
): Promise<Map<string, Map<string, Set<string>>>> {
  const rows = await store.all<{
    environment_id: string;
    function_ids: string;
    definition_hashes: string | null;
  }>(sql`SELECT n.environment_id, n.function_ids, n.definition_hashes FROM (
      SELECT w.environment_id, w.function_ids, w.definition_hashes,
        row_number() OVER (PARTITION BY w.environment_id ORDER BY w.function_ids) AS place
      FROM ${store.seams.rowsFrom("v", { environment_id: column.text(environmentIds) })}
        JOIN workers w ON w.environment_id = v.environment_id
      WHERE w.last_heartbeat_at >= ${since}
      GROUP BY w.environment_id, w.function_ids, w.definition_hashes) n
    WHERE n.place <= ${servingListsMax + 1}`);
  const found = new Map<string, Map<string, Set<string>>>(environmentIds.map((id) => [id, new Map()]));
  const listsOf = new Map<string, number>();
  for (const { environment_id: environmentId, function_ids, definition_hashes } of rows) {
    const lists = (listsOf.get(environmentId) ?? 0) + 1;
    listsOf.set(environmentId, lists);
    if (lists > servingListsMax) found.delete(environmentId);
    const served = found.get(environmentId);
    if (!served) continue;
    const functionIds = storedJson<string[]>(function_ids);
    const hashes = storedJson<Record<string, string>>(definition_hashes ?? "{}");
    // What a worker serves there is unknown, so nothing is said of the environment; others are still read.
    if (!functionIds || !hashes) {
      found.delete(environmentId);
      continue;
    }
    for (const functionId of functionIds) {
      const known = served.get(functionId) ?? new Set<string>();
      served.set(functionId, known);
      if (Object.hasOwn(hashes, functionId)) known.add(hashes[functionId]!);
    }
  }
  return found;
}

/** The functions that connected workers serve, each with the hashes of the definitions that they serve. */
export type ServedFunctions = ReadonlyMap<string, ReadonlySet<string>>;

/** A run that begins, as far as it matters who takes it. */
interface ServedRun {
  environmentId: string;
  functionId: string;
  mode: "pull" | "push";
  /** A run with a lease has its worker. */
  lease: object | null;
}

/** What this node knows of the workers of one environment. Times are of `clock.elapsed()`. */
interface FollowedWorkers {
  /** Undefined while it is not known. */
  served: ServedFunctions | undefined;
  readAt: number;
  askedAt: number;
  /** A read that began before a change says nothing of it. */
  changes: number;
  /** When subscribers were told last that a function is unserved. */
  readonly toldAt: Map<string, number>;
}

export interface ConnectedWorkersDeps extends Basics<"store" | "clock" | "log" | "metrics"> {
  /** Called after the commit of an unserved run, at most once a minute for a function; it may be lost. */
  announce: (target: { environmentId: string; functionId: string }) => void;
}

/**
 * Which functions have a connected worker, at any node. It is read from the store, but never for an emit:
 * what is asked for stands in memory, and loop `workers.serving` keeps it new.
 */
export class ConnectedWorkers {
  readonly #deps: ConnectedWorkersDeps;
  readonly #places = new Map<string, FollowedWorkers>();
  readonly #unserved: ReturnType<ReturnType<Metrics["counter"]>>;

  constructor(deps: ConnectedWorkersDeps) {
    this.#deps = deps;
    this.#unserved = deps.metrics.counter({
      name: "svc_unserved_runs_total",
      help: "Runs that began while no connected worker served their function, as far as this node knew.",
    })();
  }

  /** The functions of these new runs that no worker serves; undefined for none, and while it is not known. */
  unservedOf(runs: readonly ServedRun[]): string[] | undefined {
    let unserved: string[] | undefined;
    for (const { environmentId, functionId, mode, lease } of runs) {
      if (mode === "push" || lease !== null) continue;
      const place = this.#ask(environmentId);
      const served = place && this.#known(place);
      if (!served || served.has(functionId)) continue;
      unserved ??= [];
      if (!unserved.includes(functionId)) unserved.push(functionId);
      this.#tell(place, environmentId, functionId);
    }
    return unserved;
  }

  #tell(place: FollowedWorkers, environmentId: string, functionId: string): void {
    const { clock, announce } = this.#deps;
    this.#unserved.add(1);
    const now = clock.elapsed();
    if (now - (place.toldAt.get(functionId) ?? Number.NEGATIVE_INFINITY) < unservedToldMs) return;
    place.toldAt.set(functionId, now);
    announce({ environmentId, functionId });
  }

  /** Functions of which another connected worker serves another definition, as far as it is known. */
  conflictsOf({
    environmentId,
    definitionHashes,
  }: {
    environmentId: string;
    definitionHashes: Readonly<Record<string, string>> | null;
  }): string[] {
    return definitionHashes ? conflictsWith(this.served(environmentId), definitionHashes) : [];
  }

  /** What is known now; undefined for nothing. */
  served(environmentId: string): ServedFunctions | undefined {
    const place = this.#ask(environmentId);
    return place && this.#known(place);
  }

  /** The same, at most `servingFreshMs` old. Never throws: it is a hint. */
  async fresh(environmentId: string): Promise<ServedFunctions | undefined> {
    await this.refresh([environmentId]);
    return this.served(environmentId);
  }

  /** Reads of these environments what is older than that. */
  async refresh(environmentIds: readonly string[]): Promise<void> {
    const now = this.#deps.clock.elapsed();
    const old = environmentIds.filter((id) => {
      const place = this.#ask(id);
      return place && (!place.served || now - place.readAt > servingFreshMs);
    });
    await this.#read(old).catch((error) => this.#deps.log.warn("workers.serving_unread", { error }));
  }

  /** Reads it when nothing is known yet: the next emit of the environment finds it in memory. */
  async warm(environmentId: string): Promise<void> {
    if (!this.served(environmentId)) await this.refresh([environmentId]);
  }

  /** A worker registered, here or at another node. */
  changed(environmentId: string): void {
    const place = this.#places.get(environmentId);
    if (!place) return;
    place.changes++;
    place.served = undefined;
    place.toldAt.clear();
  }

  forgetEnvironment(environmentId: string): void {
    this.#places.delete(environmentId);
  }

  /** The tick of loop `workers.serving`. */
  async refreshOnce(): Promise<void> {
    const now = this.#deps.clock.elapsed();
    for (const [environmentId, { askedAt }] of this.#places)
      if (now - askedAt > servingAskedMs) this.#places.delete(environmentId);
    const oldest = [...this.#places].sort(([, one], [, other]) => one.readAt - other.readAt);
    await this.#read(oldest.slice(0, servingSliceMax).map(([environmentId]) => environmentId));
  }

  /** Undefined when this node follows as many environments as it may. */
  #ask(environmentId: string): FollowedWorkers | undefined {
    const now = this.#deps.clock.elapsed();
    let place = this.#places.get(environmentId);
    if (!place) {
      if (this.#places.size >= servingPlacesMax) return undefined;
      place = {
        served: undefined,
        readAt: Number.NEGATIVE_INFINITY,
        askedAt: now,
        changes: 0,
        toldAt: new Map(),
      };
      this.#places.set(environmentId, place);
    }
    place.askedAt = now;
    return place;
  }

  #known({ served, readAt }: FollowedWorkers): ServedFunctions | undefined {
    return this.#deps.clock.elapsed() - readAt <= servingKnownMs ? served : undefined;
  }

  async #read(environmentIds: readonly string[]): Promise<void> {
    if (environmentIds.length === 0) return;
    const { store, clock } = this.#deps;
    const readAt = clock.elapsed();
    const before = environmentIds.map((id) => this.#places.get(id)?.changes);
    const found = await servedLists(store, environmentIds, clock.now() - workerSilenceMsMax);
    for (const [at, environmentId] of environmentIds.entries()) {
      const place = this.#places.get(environmentId);
      if (!place || place.changes !== before[at] || place.readAt > readAt) continue;
      place.readAt = readAt;
      place.served = found.get(environmentId);
    }
  }
}

/** What a worker with these hashes is told of the others. */
function conflictsWith(
  served: ServedFunctions | undefined,
  hashes: Readonly<Record<string, string>> | null,
): string[] {
  if (!served || !hashes) return [];
  const conflicts: string[] = [];
  for (const [functionId, own] of Object.entries(hashes)) {
    const others = served.get(functionId);
    if (others && (others.size > 1 || (others.size === 1 && !others.has(own)))) conflicts.push(functionId);
    if (conflicts.length === conflictsToldMax) break;
  }
  return conflicts;
}
