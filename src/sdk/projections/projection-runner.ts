import { SvcError } from "../wire/errors.ts";
import type { Message } from "../wire/read.ts";
import { pause, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { Logger } from "../wire/types.ts";
import { createReopening } from "../worker/reopening.ts";
import { GenerationRunner, type RunnerOptions } from "./generation-runner.ts";
import {
  definitionMessage,
  mustPoll,
  type ProjectionPlace,
  readPlace,
  sqlMessage,
} from "./projection-feed.ts";
import type { SvcProjection } from "./projection-types.ts";

/** How often a runner looks for another generation to be folded, without a hint. */
const lookMs = 30_000;

const isDenied = ({ status }: SvcError): boolean => status === 401 || status === 403;

export interface ProjectionRunnerOptions extends Omit<RunnerOptions, "onBuilding"> {
  /** The runner cannot continue: its key is not accepted, or the projection was deleted. */
  onFailed: (error: SvcError) => void;
}

/**
 * Keeps one projection folded: registers it, rebuilds it when it finds an older version and may do so, and
 * folds the generations that belong to its own version. It never folds states of another version's code.
 */
class ProjectionRunner {
  readonly #options: ProjectionRunnerOptions;
  readonly #reopening = createReopening();
  readonly #running = new Map<number, { runner: GenerationRunner; done: Promise<void> }>();
  /** Generations that were folded by this version's code from their first event. */
  readonly #own = new Set<number>();
  readonly #leaving = new AbortController();
  #isStream = true;
  #isJoined = false;
  #isBehind = false;
  #over: Promise<void> | undefined;
  #wake = () => {};

  constructor(options: ProjectionRunnerOptions) {
    this.#options = options;
  }

  get name(): string {
    return this.#options.projection.name;
  }

  /** Registers the projection, or takes over what is registered. Throws SvcError. */
  async join(): Promise<void> {
    const { projection } = this.#options;
    const { work } = projection;
    if (work.mode === "sql") {
      await this.#call("CreateSQLProjection", sqlMessage(projection, work));
      return;
    }
    const place = await this.#place();
    if (place && place.version > projection.version) return;
    const isOlder = place !== undefined && place.version < projection.version;
    if (!place || !isOlder || projection.rebuild === "never") {
      await this.#call("RegisterProjection", definitionMessage(projection));
      this.#isJoined = true;
      return;
    }
    try {
      if (place.building > 0 || place.status === "rebuilding") await this.#call("CancelRebuild", {});
      const definition = definitionMessage(projection);
      await this.#call("RebuildProjection", { strategy: projection.rebuild, definition });
      this.#isJoined = true;
    } catch (error) {
      // It is paused, or its first events have expired: that is for people to decide.
      if (!(error instanceof SvcError) || error.code !== "failed_precondition") throw error;
      this.#options.log.error("a new version of a projection cannot be folded yet; trying again", {
        ...{ projection: this.name, reason: error.message },
      });
    }
  }

  start(): void {
    if (this.#options.projection.work.mode === "sql") return;
    this.#over ??= this.#run();
  }

  /** Resolves once what was under way is saved. */
  async drain(): Promise<void> {
    this.#leaving.abort();
    for (const { runner } of this.#running.values()) runner.leave();
    await this.#over;
  }

  stop(): void {
    this.#leaving.abort();
    for (const { runner } of this.#running.values()) runner.abort();
  }

  async #run(): Promise<void> {
    const { signal } = this.#leaving;
    signal.addEventListener("abort", () => this.#wake(), { once: true });
    while (!signal.aborted) {
      try {
        const place = await this.#look();
        for (const generation of place ? this.#wanted(place) : []) this.#begin(generation);
      } catch (error) {
        if (signal.aborted) break;
        if (!this.#mayGoOn(error)) break;
        await pause(this.#reopening.delayMs(), signal);
        continue;
      }
      await this.#news();
    }
    await Promise.all([...this.#running.values()].map(({ done }) => done));
  }

  /** Resolves when a feed has ended, something was built, or it is time to look anyway. */
  async #news(): Promise<void> {
    const over = new AbortController();
    this.#wake = () => over.abort();
    if (this.#leaving.signal.aborted) return;
    await pause(lookMs * (0.75 + Math.random() / 2), over.signal);
  }

  async #look(): Promise<ProjectionPlace | undefined> {
    if (!this.#isJoined) await this.join();
    const place = await this.#place();
    if (!place) throw new SvcError("not_found", `projection ${this.name} was deleted`, { status: 404 });
    return place;
  }

  #wanted({ version, generation, building }: ProjectionPlace): number[] {
    const { projection, log } = this.#options;
    const isAhead = version > projection.version;
    if (isAhead && !this.#isBehind)
      log.warn("a newer version of a projection is registered; this worker leaves it to others", {
        ...{ projection: this.name, version: projection.version, registered: version },
      });
    this.#isBehind = isAhead;
    // Until the newer version has taken over, what is read is still of this version.
    if (isAhead) return building > 0 && this.#own.has(generation) ? [generation] : [];
    if (!this.#isJoined) return [];
    if (building === 0) this.#own.add(generation);
    else this.#own.add(building);
    const isReadByUs = this.#own.has(generation) || projection.rebuild !== "side_by_side";
    return [...(isReadByUs ? [generation] : []), ...(building > 0 ? [building] : [])];
  }

  #begin(generation: number): void {
    if (this.#running.has(generation) || this.#leaving.signal.aborted) return;
    const onBuilding = () => this.#wake();
    const runner = new GenerationRunner({ ...this.#options, onBuilding }, generation);
    const done = this.#follow(runner, generation);
    this.#running.set(generation, { runner, done });
  }

  async #follow(runner: GenerationRunner, generation: number): Promise<void> {
    this.#reopening.opened();
    try {
      await runner.run(this.#isStream);
    } catch (error) {
      if (!this.#leaving.signal.aborted && !this.#mayGoOn(error)) this.#leaving.abort();
    }
    await pause(this.#reopening.delayMs(), this.#leaving.signal);
    this.#running.delete(generation);
    this.#wake();
  }

  /** False for what no later try would change. */
  #mayGoOn(thrown: unknown): boolean {
    const { log, onFailed } = this.#options;
    const error = thrown instanceof SvcError ? thrown : new SvcError("internal", String(thrown));
    const fields = { projection: this.name, reason: error.message };
    if (isDenied(error) || (error.code === "not_found" && !mustPoll(error))) {
      log.error("a projection is no longer run by this worker", fields);
      onFailed(error);
      return false;
    }
    if (this.#isStream && mustPoll(error)) {
      log.debug("a projection is not streamed here; polling", fields);
      this.#isStream = false;
    } else log.debug("a projection's runner was interrupted; trying again", fields);
    return true;
  }

  /** Undefined for a projection that is not registered. */
  async #place(): Promise<ProjectionPlace | undefined> {
    try {
      return readPlace(await this.#call("GetProjectionStatus", {}));
    } catch (error) {
      if (error instanceof SvcError && error.code === "not_found") return undefined;
      throw error;
    }
  }

  #call(method: string, message: Message): Promise<Message> {
    const path = `/svc.v1.ProjectionService/${method}`;
    const body = { name: this.name, ...message };
    return this.#options.transport.call({ method: "POST", path, body, isConsistent: false }, safe);
  }
}

export interface WorkerProjectionsOptions {
  transport: Transport;
  projections: readonly SvcProjection[];
  workerId: string;
  log: Logger;
  /** No projection of this worker can go on. */
  onAllFailed: (error: SvcError) => void;
}

/** What no other process has, although both may be told the same worker id. */
const ownWord = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => (byte % 36).toString(36)).join("");

/** The projections of a worker, each with a runner of its own. */
export class WorkerProjections {
  readonly #runners: readonly ProjectionRunner[];

  constructor({ transport, projections, workerId, log, onAllFailed }: WorkerProjectionsOptions) {
    if (new Set(projections.map(({ name }) => name)).size < projections.length)
      throw new TypeError("two projections of a worker have the same name");
    const runnerId = `${workerId}:${ownWord()}`;
    let left = projections.length;
    const onFailed = (error: SvcError) => {
      left--;
      if (left === 0) onAllFailed(error);
    };
    this.#runners = projections.map(
      (projection) => new ProjectionRunner({ transport, projection, runnerId, log, onFailed }),
    );
  }

  /** Throws SvcError. */
  async join(): Promise<void> {
    for (const runner of this.#runners) await runner.join();
  }

  start(): void {
    for (const runner of this.#runners) runner.start();
  }

  /** Resolves once what was under way is saved. */
  async drain(): Promise<void> {
    await Promise.all(this.#runners.map((runner) => runner.drain()));
  }

  stop(): void {
    for (const runner of this.#runners) runner.stop();
  }
}
