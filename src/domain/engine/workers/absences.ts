import type { Instant } from "../../../kit/clock.ts";
import type { Basics } from "../../../store/store.ts";
import type { GiveBack } from "../dispatch/give-back.ts";
import { holderEnding, jobIdOf } from "../jobs/rules.ts";
import type { Runs } from "../runs/service.ts";
import type { LeaseTerms } from "./lease-terms.ts";
import { lostJobsMax, onTheWayMs } from "./limits.ts";

export interface AbsencesDeps extends Basics<"clock" | "log"> {
  runs: Pick<Runs, "findLeases" | "endSilent">;
  giveBackLeases: GiveBack["giveBackLeases"];
}

const endingOf = ({ holder }: LeaseTerms): string | undefined =>
  holder === undefined ? undefined : holderEnding(holder);

type WorkerName = { environmentId: string; workerId: string };

/**
 * Ends leases before their time where there is a sign that nobody holds them. Only workers that name their
 * process and ask for a time are looked at. A wrong end costs a repetition: the fence refuses who goes on.
 */
export class Absences {
  readonly #deps: AbsencesDeps;
  readonly #cancels = new Set<() => void>();

  constructor(deps: AbsencesDeps) {
    this.#deps = deps;
  }

  /**
   * A process of this name began: one before it may have gone. What no process of the name renews from now on
   * goes to others.
   */
  came(worker: WorkerName, terms: LeaseTerms): void {
    this.#suspect(worker, terms, { at: this.#deps.clock.now(), ending: undefined });
  }

  /** The stream of the process has ended. */
  left(worker: WorkerName, terms: LeaseTerms): void {
    // Leases that it renewed in its last millisecond end too.
    this.#suspect(worker, terms, { at: this.#deps.clock.now() + 1, ending: endingOf(terms) });
  }

  #suspect(
    worker: WorkerName,
    { patienceMs, leaseMs }: LeaseTerms,
    { at, ending }: { at: Instant; ending: string | undefined },
  ): void {
    if (patienceMs === undefined) return;
    const { clock, log, runs } = this.#deps;
    const cancel = clock.after(patienceMs, () => {
      this.#cancels.delete(cancel);
      runs.endSilent({ ...worker, ending, leaseMs, at }).then(
        (count) => {
          if (count > 0) log.info("worker.leases_ended", { ...worker, count });
        },
        (error: unknown) => log.warn("worker.absence_unchecked", { ...worker, error }),
      );
    });
    this.#cancels.add(cancel);
  }

  /** The process says which jobs it holds: what else it was given some time ago was lost on the way. */
  async holds(worker: WorkerName, terms: LeaseTerms, jobIds: readonly string[]): Promise<void> {
    const ending = endingOf(terms);
    if (ending === undefined) return;
    const { clock, log, runs, giveBackLeases } = this.#deps;
    const { leaseMs } = terms;
    const held = new Set(jobIds);
    const claimedBefore = clock.now() - onTheWayMs;
    try {
      const most = held.size + lostJobsMax;
      const leases = await runs.findLeases({ ...worker, ending, leaseMs, claimedBefore, most });
      const lost = leases.filter(({ runId, executionSeq }) => !held.has(jobIdOf(runId, executionSeq)));
      if (lost.length === 0) return;
      log.info("worker.jobs_lost", { ...worker, count: lost.length });
      giveBackLeases(lost);
    } catch (error) {
      // Their leases end by themselves.
      log.warn("worker.holding_unchecked", { ...worker, error });
    }
  }

  /** Forgets what was to be looked at. */
  drain(): void {
    for (const cancel of this.#cancels) cancel();
    this.#cancels.clear();
  }
}
