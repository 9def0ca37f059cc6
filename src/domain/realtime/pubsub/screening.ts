import { Fault } from "../../../kit/fault.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import type { Call, Screen } from "../../../kit/operation.ts";
import type { Delivery } from "./delivery.ts";

/**
 * The caller whose deliveries are screened. `onRenewed` tells of each time that its rights were read again.
 */
export type Screened = Pick<Call, "screen" | "onRenewed">;

/** Keeps from one reader the deliveries that deny policies refuse. */
export interface DeliveryScreening {
  /** Reads the caller's deny policies as they are now. */
  look(): void | Promise<void>;
  /** True when there are any: then the caller's deliveries cannot be shared with others of its channel. */
  isApart(): boolean;
  /** Writes the delivery unless a policy refuses it. Writes keep the order of the calls. */
  deliver(delivery: Delivery, write: () => void | Promise<void>): void | Promise<void>;
}

/** Deliveries that may wait for a decision about an earlier one; beyond that the subscription ends. */
const undecidedMax = 10_000;

/**
 * The names under which policies may refuse a delivery: its topic, and for an event its name on any topic.
 */
const namesOf = ({ topic, eventName: event }: Delivery): string[] =>
  event === undefined
    ? [topic]
    : topic === `events:${event}`
      ? [topic, event]
      : [topic, `events:${event}`, event];

const undecided = () =>
  new Fault(
    "unavailable",
    "access policies could not be read in time: subscribe again with start_after_sequence",
    {
      headers: { "Retry-After": "1" },
    },
  );

export type OpenScreening = (caller: Screened, ended: (fault: Fault) => void) => DeliveryScreening;

export function openScreenings(metrics: Metrics): OpenScreening {
  const denied = metrics.counter({
    name: "svc_deliveries_denied_total",
    help: "Deliveries that deny policies kept from a subscriber of a wider pattern.",
  })();

  return (caller, ended) => {
    let screen: Screen | undefined;
    let last: Promise<void> | undefined;
    let waiting = 0;

    function mayHave(delivery: Delivery): boolean | Promise<boolean> {
      if (!screen) return true;
      const judged = (refused: Fault | undefined): boolean => {
        if (refused) denied.add(1);
        return refused === undefined;
      };
      const refused = screen.refusalOf(namesOf(delivery));
      return refused instanceof Promise ? refused.then(judged) : judged(refused);
    }

    /** Decides and writes after the deliveries that wait already. */
    async function inTurn(
      before: Promise<void> | undefined,
      may: boolean | Promise<boolean>,
      write: () => void | Promise<void>,
    ): Promise<void> {
      await before;
      try {
        if (await may) await write();
      } catch (error) {
        ended(error instanceof Fault ? error : undecided());
      } finally {
        if (--waiting === 0) last = undefined;
      }
    }

    return {
      look() {
        const found = caller.screen("events:subscribe", "event");
        if (found instanceof Promise)
          return found.then((read) => {
            screen = read;
          });
        screen = found;
        return undefined;
      },
      isApart: () => screen !== undefined,
      deliver(delivery, write) {
        if (!screen && !last) return write();
        const may = mayHave(delivery);
        if (!last && !(may instanceof Promise)) return may ? write() : undefined;
        if (++waiting > undecidedMax) return ended(undecided());
        last = inTurn(last, may, write);
        return last;
      },
    };
  };
}
