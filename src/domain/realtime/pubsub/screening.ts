import { Fault, tryAgain } from "../../../kit/fault.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import type { Call, Screen } from "../../../kit/operation.ts";
import type { Delivery } from "./delivery.ts";

/** Whose deliveries are screened: the caller as it is now, and word of each time that this was found out. */
export type Screened = Pick<Call, "screen" | "onRenewed">;

/** What deny policies keep from one reader of deliveries. */
export interface DeliveryScreening {
  /** Looks up what is kept from the caller now. */
  look(): void | Promise<void>;
  /** Whether anything is: then its deliveries are its own, and cannot be shared with others of its channel. */
  isApart(): boolean;
  /** Writes the delivery unless it is kept from the caller; in the order in which they are given. */
  deliver(delivery: Delivery, write: () => void | Promise<void>): void | Promise<void>;
}

/** Deliveries that wait for a decision about one before them; whoever has more is told to come again. */
const undecidedMax = 10_000;

/** As deny policies may name what is delivered: by its topic, and an event by its name, whatever topic it comes under. */
const namesOf = ({ topic, eventName: event }: Delivery): string[] =>
  event === undefined
    ? [topic]
    : topic === `events:${event}`
      ? [topic, event]
      : [topic, `events:${event}`, event];

const undecided = () =>
  tryAgain("unavailable", "policies could not be asked in time: subscribe again with start_after_sequence");

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

    /** Behind what waits already. */
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
