import type { Instant } from "../../../kit/clock.ts";
import type { Basics } from "../../../store/store.ts";
import type { GiveBack } from "../dispatch/dispatcher.ts";
import { holderEnding, jobIdOf, leaseDoubtShare } from "../jobs/rules.ts";
import type { Runs } from "../runs/service.ts";
import { lostJobsMax, onTheWayMs } from "./limits.ts";
import type { LeaseTerms } from "./registration.ts";
import type { WorkerRecord } from "./rows.ts";

/** When polls of three workers end within a second, the network broke, and no worker counts as dead. */
const crowdMin = 3;
const crowdMs = 1_000;
/** Around a goodbye the end of a poll is explained by it. */
const explainedMs = 5_000;
/** Longer than any worker is waited for. */
const keptMs = 30_000;
const endedMax = 10_000;

export interface AbsencesDeps extends Basics<"clock" | "log"> {
  runs: Pick<Runs, "findLeases" | "endSilent">;
  giveBackLeases: GiveBack["giveBackLeases"];
}

const endingOf = ({ holder }: LeaseTerms): string | undefined =>
  holder === undefined ? undefined : holderEnding(holder);

type WorkerName = { environmentId: string; workerId: string };
const nameOf = ({ environmentId, workerId }: WorkerName) => `${environmentId}\n${workerId}`;
const processOf = (worker: WorkerName, { holder = "" }: LeaseTerms) => `${nameOf(worker)}\n${holder}`;

/**
 * Ends leases before their time where there is a sign that no process holds them. Only workers that name
 * their process and ask for a time are looked at. A wrong end costs a repetition: fences stop the worker.
 */
export class Absences {
  readonly #deps: AbsencesDeps;
  readonly #cancels = new Set<() => void>();
  /** How many polls of a process are held now. */
  readonly #held = new Map<string, number>();
  /** Polls that ended without an answer not long ago, the oldest first. */
  #ended: { name: string; at: number }[] = [];
  /** When a worker said goodbye, or came back, by name. */
  readonly #explained = new Map<string, number>();
  /** Of processes whose last poll ended: what takes it back. */
  readonly #doubts = new Map<string, () => void>();
  #isDrained = false;

  constructor(deps: AbsencesDeps) {
    this.#deps = deps;
  }

  /**
   * A process of this name began: one before it may have gone. What no process of the name renews from now on
   * goes to others.
   */
  came(worker: WorkerName, terms: LeaseTerms): void {
    this.#explain(worker);
    this.#suspect(worker, terms, { at: this.#deps.clock.now(), ending: undefined });
  }

  /** It said goodbye. */
  parted(worker: WorkerName, terms: LeaseTerms): void {
    this.#explain(worker);
    this.left(worker, terms);
  }

  /** That a poll of it ended a moment ago, or will in a moment, says nothing of others. */
  #explain(worker: WorkerName): void {
    const now = this.#deps.clock.elapsed();
    this.#explained.delete(nameOf(worker));
    this.#explained.set(nameOf(worker), now);
    for (const [name, at] of this.#explained) {
      if (now - at <= keptMs && this.#explained.size <= endedMax) break;
      this.#explained.delete(name);
    }
  }

  /** The stream of the process has ended; it is as good a sign as the end of a held poll. */
  left(worker: WorkerName, terms: LeaseTerms, pollEnd = false): void {
    if (pollEnd) this.#pollEnded(worker, terms);
    // Leases that it renewed in its last millisecond end too.
    this.#suspect(worker, terms, { at: this.#deps.clock.now() + 1, ending: endingOf(terms) });
  }

  /** Any poll of the process is a sign of life; a held one that ends without an answer is a sign of death. */
  async during<Answer>(
    { environmentId, id: workerId, pollEnd }: Pick<WorkerRecord, "environmentId" | "id" | "pollEnd">,
    terms: LeaseTerms,
    { holdMs, signal }: { holdMs: number; signal: AbortSignal },
    poll: Promise<Answer>,
  ): Promise<Answer> {
    const worker = { environmentId, workerId };
    this.#doubts.get(processOf(worker, terms))?.();
    if (holdMs === 0 || !pollEnd) return poll;
    const own = processOf(worker, terms);
    this.#held.set(own, (this.#held.get(own) ?? 0) + 1);
    try {
      return await poll;
    } finally {
      const others = this.#held.get(own)! - 1;
      if (others > 0) this.#held.set(own, others);
      else this.#held.delete(own);
      // A server may notice a broken connection after the process has polled again.
      if (signal.aborted && others === 0) this.#pollEnded(worker, terms);
    }
  }

  #pollEnded(worker: WorkerName, terms: LeaseTerms): void {
    if (terms.patienceMs === undefined || this.#isDrained) return;
    const { clock } = this.#deps;
    const now = clock.elapsed();
    const first = this.#ended.findIndex(({ at }) => now - at <= keptMs);
    const kept = first === -1 ? [] : this.#ended.slice(Math.max(first, this.#ended.length - endedMax));
    this.#ended = [...kept, { name: nameOf(worker), at: now }];
    const own = processOf(worker, terms);
    this.#doubts.get(own)?.();
    const forget = this.#suspect(
      worker,
      { ...terms, patienceMs: terms.leaseMs * leaseDoubtShare },
      {
        ...{ at: clock.now() + 1, ending: endingOf(terms) },
        unless: () => {
          this.#doubts.delete(own);
          return this.#isCrowd(now);
        },
      },
    );
    if (!forget) return;
    this.#doubts.set(own, () => {
      this.#doubts.delete(own);
      forget();
    });
  }

  /** Polls of many that ended in the same second: the way broke, and not they. */
  #isCrowd(since: number): boolean {
    const names = new Set<string>();
    for (let place = this.#ended.length - 1; place >= 0 && names.size < crowdMin; place--) {
      const { name, at } = this.#ended[place]!;
      if (at < since - crowdMs) break;
      const explained = this.#explained.get(name);
      const isOwn = explained !== undefined && Math.abs(explained - at) <= explainedMs;
      if (at <= since + crowdMs && !isOwn) names.add(name);
    }
    return names.size >= crowdMin;
  }

  #suspect(
    worker: WorkerName,
    { patienceMs, leaseMs }: LeaseTerms,
    { at, ending, unless }: { at: Instant; ending: string | undefined; unless?: () => boolean },
  ): (() => void) | undefined {
    if (patienceMs === undefined) return undefined;
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
    return () => {
      this.#cancels.delete(cancel);
      cancel();
    };
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
