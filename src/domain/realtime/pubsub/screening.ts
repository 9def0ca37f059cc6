import {
  screenOfKinds,
  type ThingKind,
  type ThingScreen,
  thingsOf,
  thingsOfEvent,
} from "../../../gate/things.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import type { Call, Thing } from "../../../kit/operation.ts";
import type { Delivery } from "./delivery.ts";
import { shownByFrames, thingsOfFrame } from "./frame-things.ts";
import type { Pattern } from "./rules.ts";

/** The caller whose deliveries are screened. `onRenewed` is called each time its rights were read again. */
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

/** The kinds of things that the pattern's deliveries show; each is also an event of its topic's name. */
function shownBy({ namespace, tokens }: Pattern): ThingKind[] {
  if (namespace === "events" || namespace === "entity") return ["event", "stream"];
  if (namespace === "topic") return ["event"];
  return [
    ...new Set<ThingKind>(["event", ...shownByFrames(namespace === "system" ? tokens[1]! : namespace)]),
  ];
}

/** What policies are asked about before a delivery: its topic, and what it shows. Undefined if unknown. */
function thingsOfDelivery(delivery: Delivery): Thing[] | undefined {
  const { topic, eventName: name, stream: entity_id, source } = delivery;
  const shown =
    name !== undefined
      ? thingsOfEvent({ name, entity_id })
      : source === "system"
        ? thingsOfFrame(delivery)
        : [];
  return shown && [...thingsOf("event", topic), ...shown];
}

const undecided = () =>
  new Fault(
    "unavailable",
    "access policies could not be read in time: subscribe again with start_after_sequence",
    {
      headers: { "Retry-After": "1" },
    },
  );

export type OpenScreening = (
  caller: Screened,
  pattern: Pattern,
  ended: (fault: Fault) => void,
) => DeliveryScreening;

export function openScreenings(metrics: Metrics): OpenScreening {
  const denied = metrics.counter({
    name: "svc_deliveries_denied_total",
    help: "Deliveries that deny policies kept from a subscriber of a wider pattern.",
  })();

  return (caller, pattern, ended) => {
    const kinds = shownBy(pattern);
    let screen: ThingScreen | undefined;
    let last: Promise<void> | undefined;
    let waiting = 0;

    function mayHave(delivery: Delivery): boolean | Promise<boolean> {
      if (!screen || delivery.isPosition) return true;
      const judged = (refused: Fault | undefined): boolean => {
        if (refused) denied.add(1);
        return refused === undefined;
      };
      const things = thingsOfDelivery(delivery);
      const refused = things ? screen.refusalOf(things) : undecided();
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
        const found = screenOfKinds(caller, ...kinds);
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
