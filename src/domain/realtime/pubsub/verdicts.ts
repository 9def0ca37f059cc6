import { breather } from "../../../kit/breather.ts";
import { CelBudget, type CelProgram } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";

/**
 * Cost limit of all filters of one log for one event, in items: ten of the dearest filters, or thousands of
 * others.
 */
export const eventItemsMax = 100_000;
/** The same for all events of a second, and how much of it can be saved up. */
export const logItemsPerSecond = 400_000;
export const logItemsMax = 800_000;

interface FilterableDelivery {
  read(budget: CelBudget): void;
  passes(filter: NonNullable<Filtering["spec"]["filter"]>, budget: CelBudget): boolean;
}

/** A channel as far as its filter is concerned. */
export interface Filtering {
  readonly spec: { readonly filter: CelProgram | undefined };
}

/** Whose filters hold for one event, as far as they were evaluated. */
export type Verdicts<Channel extends Filtering> = Map<Channel, boolean>;

export type Judge<Channel extends Filtering> = ReturnType<typeof openJudge<Channel>>;

export const tooMuch = (): Fault =>
  new Fault(
    "resource_exhausted",
    "filter: cost limit of all filters on this log exceeded, and this filter costs most; narrow the pattern, or use a simpler filter",
    { field: "filter", code: "LIMIT_EXCEEDED" },
  );

export interface JudgeDeps<Channel extends Filtering> {
  environmentId: string;
  clock: Pick<Clock, "elapsed" | "sleep">;
  /** Ends every subscription of the channel. */
  end: (channel: Channel, fault: Fault) => void;
}

/** After this time a channel's past cost counts half. */
const halvedMs = 1_000;

/** One for each log with subscribers. */
export function openJudge<Channel extends Filtering>({ environmentId, clock, end }: JudgeDeps<Channel>) {
  const saved = new CelBudget(logItemsMax);
  let savedAt = clock.elapsed();
  /** Recent cost of each channel, in items. */
  const spent = new Map<Channel, number>();
  let halvedAt = savedAt;

  function budgetNow(): CelBudget {
    const now = clock.elapsed();
    saved.grant(Math.floor(((now - savedAt) * logItemsPerSecond) / 1_000));
    savedAt = now;
    const halvings = Math.floor((now - halvedAt) / halvedMs);
    if (halvings > 0) {
      halvedAt = now;
      for (const [channel, items] of spent)
        if (items < 2 ** halvings) spent.delete(channel);
        else spent.set(channel, items / 2 ** halvings);
    }
    const budget = new CelBudget(eventItemsMax);
    if (saved.left < eventItemsMax) budget.spend(eventItemsMax - Math.max(0, saved.left));
    return budget;
  }

  /** Ends the channel with the highest recent cost, and gives its items back to the budgets. */
  function endDearest(budget: CelBudget, verdicts: Verdicts<Channel>): void {
    const [dearest, items] = [...spent].reduce((most, one) => (one[1] > most[1] ? one : most));
    spent.delete(dearest);
    verdicts.set(dearest, false);
    budget.grant(items);
    saved.grant(items);
    end(dearest, tooMuch());
  }

  const nextUndecided = (channels: readonly Channel[], verdicts: Verdicts<Channel>): Channel | undefined => {
    for (const channel of channels) {
      if (verdicts.has(channel)) continue;
      if (channel.spec.filter) return channel;
      verdicts.set(channel, true);
    }
    return undefined;
  };

  function evaluate(
    delivery: FilterableDelivery,
    channel: Channel,
    verdicts: Verdicts<Channel>,
    budget: CelBudget,
  ): void {
    // Parsing the payload serves all filters: it is not charged to the first of them.
    delivery.read(budget);
    const before = budget.left;
    const passes = delivery.passes(channel.spec.filter!, budget);
    const items = before - budget.left;
    saved.spend(items);
    spent.set(channel, (spent.get(channel) ?? 0) + items);
    // A filter that ran out of budget has no valid verdict: it is evaluated again once the dearest has left.
    if (budget.isUsedUp) endDearest(budget, verdicts);
    else verdicts.set(channel, passes);
  }

  return {
    /** The channel has no members any more. */
    forget: (channel: Channel) => void spent.delete(channel),

    /**
     * Evaluates the filters of these channels; undefined when that took no pause. When together they exceed
     * the cost limit, the dearest channels are ended, so that one costly filter does not cut off the others.
     */
    judge(delivery: FilterableDelivery, channels: () => readonly Channel[], verdicts: Verdicts<Channel>) {
      let next = nextUndecided(channels(), verdicts);
      if (!next) return undefined;
      const budget = budgetNow();
      const breathe = breather(clock, environmentId);
      const goOn = async (first: Promise<void>): Promise<void> => {
        await first;
        for (let one = nextUndecided(channels(), verdicts); one; one = nextUndecided(channels(), verdicts)) {
          evaluate(delivery, one, verdicts, budget);
          await breathe();
        }
      };
      for (; next; next = nextUndecided(channels(), verdicts)) {
        const pause = breathe();
        if (pause) return goOn(pause);
        evaluate(delivery, next, verdicts, budget);
      }
      return undefined;
    },
  };
}
