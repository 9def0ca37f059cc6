import type { Instant } from "../../../kit/clock.ts";
import type { Basics } from "../../../store/store.ts";
import type { GiveBack } from "../dispatch/give-back.ts";
import { holderEnding, jobIdOf } from "../jobs/rules.ts";
import type { Runs } from "../runs/service.ts";
import type { LeaseTerms } from "./lease-terms.ts";
import { lostJobsMax, onTheWayMs } from "./limits.ts";
import type { WorkerRecord } from "./rows.ts";

/** Of a lease: so long may a worker whose held poll ended without an answer be silent. */
const pollEndShare = 0.15;
/** Polls of so many workers, or of a quarter of them, that end within so long are no sign of death. */
const crowdMin = 3;
const crowdMs = 1_000;
const endedMax = 10_000;

export interface AbsencesDeps extends Basics<"clock" | "log"> {
  runs: Pick<Runs, "findLeases" | "endSilent">;
  giveBackLeases: GiveBack["giveBackLeases"];
}

const endingOf = ({ holder }: LeaseTerms): string | undefined =>
  holder === undefined ? undefined : holderEnding(holder);

type WorkerName = { environmentId: string; workerId: string };
const nameOf = ({ environmentId, workerId }: WorkerName) => `${environmentId}\n${workerId}`;

/**
 * Ends leases before their time where there is a sign that nobody holds them. Only workers that name their
 * process and ask for a time are looked at. A wrong end costs a repetition: the fence refuses who goes on.
 */
export class Absences {
  readonly #deps: AbsencesDeps;
  readonly #cancels = new Set<() => void>();
  /** Held polls under way, and those that ended without an answer not long ago. */
  #polls = 0;
  #ended: { name: string; at: number }[] = [];
  /** The last ones that said goodbye. */
  #parted: string[] = [];
  #isDrained = false;

  constructor(deps: AbsencesDeps) {
    this.#deps = deps;
  }

  /**
   * A process of this name began: one before it may have gone. What no process of the name renews from now on
   * goes to others.
   */
  came(worker: WorkerName, terms: LeaseTerms): void {
    const isOther = (name: string) => name !== nameOf(worker);
    this.#parted = this.#parted.filter(isOther);
    // That its poll ended says nothing of others.
    this.#ended = this.#ended.filter(({ name }) => isOther(name));
    this.#suspect(worker, terms, { at: this.#deps.clock.now(), ending: undefined });
  }

  /** It said goodbye: that its poll ended says nothing of others. */
  parted(worker: WorkerName, terms: LeaseTerms): void {
    // The server may hear of the end of its poll before the goodbye, or after it.
    this.#parted = [...this.#parted.slice(-endedMax), nameOf(worker)];
    this.left(worker, terms);
  }

  /** The stream of the process has ended; it is as good a sign as the end of a held poll. */
  left(worker: WorkerName, terms: LeaseTerms, pollEnd = false): void {
    if (pollEnd) this.#pollEnded(worker, terms);
    // Leases that it renewed in its last millisecond end too.
    this.#suspect(worker, terms, { at: this.#deps.clock.now() + 1, ending: endingOf(terms) });
  }

  /** A poll of the process, held or not: one that is held and ends without an answer is a sign of death. */
  async during<Answer>(
    { environmentId, id: workerId, pollEnd }: Pick<WorkerRecord, "environmentId" | "id" | "pollEnd">,
    terms: LeaseTerms,
    { holdMs, signal }: { holdMs: number; signal: AbortSignal },
    poll: Promise<Answer>,
  ): Promise<Answer> {
    if (holdMs === 0 || !pollEnd) return poll;
    this.#polls++;
    try {
      return await poll;
    } finally {
      this.#polls--;
      if (signal.aborted) this.#pollEnded({ environmentId, workerId }, terms);
    }
  }

  #pollEnded(worker: WorkerName, terms: LeaseTerms): void {
    if (terms.patienceMs === undefined || this.#isDrained) return;
    const { clock } = this.#deps;
    const patienceMs = terms.leaseMs * pollEndShare;
    const now = clock.elapsed();
    const kept = this.#ended.filter(({ at }) => now - at <= patienceMs + crowdMs).slice(-endedMax);
    this.#ended = [...kept, { name: nameOf(worker), at: now }];
    const crowd = Math.max(crowdMin, this.#polls / 4);
    const near = () => {
      const parted = new Set(this.#parted);
      return this.#ended.filter(({ name, at }) => Math.abs(at - now) <= crowdMs && !parted.has(name));
    };
    this.#suspect(
      worker,
      { ...terms, patienceMs },
      // Polls of many that end at once: the way broke, and not they.
      {
        ...{ at: clock.now() + 1, ending: endingOf(terms) },
        unless: () => new Set(near().map(({ name }) => name)).size >= crowd,
      },
    );
  }

  #suspect(
    worker: WorkerName,
    { patienceMs, leaseMs }: LeaseTerms,
    { at, ending, unless }: { at: Instant; ending: string | undefined; unless?: () => boolean },
  ): void {
    if (patienceMs === undefined) return;
    const { clock, log, runs } = this.#deps;
    const cancel = clock.after(patienceMs, () => {
      this.#cancels.delete(cancel);
      if (unless?.()) return;
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
    this.#isDrained = true;
    for (const cancel of this.#cancels) cancel();
    this.#cancels.clear();
  }
}
