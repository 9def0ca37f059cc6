import type { SvcError } from "../wire/errors.ts";
import type { Transport } from "../wire/transport.ts";
import type { Logger } from "../wire/types.ts";
import { ProjectionRunner } from "./projection-runner.ts";
import type { SvcProjection } from "./projection-types.ts";

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
