import { Fault } from "../../kit/fault.ts";
import type { Log } from "../../kit/log.ts";
import type { Delivery } from "../pubsub/delivery.ts";
import type { MemberRow } from "./members.ts";
import type { GroupRow } from "./rows.ts";

/** Who sits at a desk. */
export interface GroupReader {
  /**
   * A promise resolves once the delivery has left for the consumer, or was dropped. `stands` is asked right before it is
   * written: after a no it is dropped, as it may be another's by now, and acknowledged.
   */
  give(delivery: Delivery, stands: () => boolean): void | Promise<void>;
  /** Throws the fault of who may not have what the pattern stands for: asked before anything of it is given. */
  permit(pattern: string): Promise<void>;
  /** Nothing follows. */
  ended(fault: Fault): void;
}

/** What was taken for a member. */
export interface Waiting {
  delivery: Delivery;
  position: number;
  /** When the claim began: elapsed, as every time here, so that neither a freeze nor a corrected clock deceives. */
  takenAt: number;
  holdMs: number;
}

export interface Seat {
  row: MemberRow;
  reader: GroupReader;
  queue: Waiting[];
  giving: boolean;
  /** Of what it is being given now. */
  givingSince: number;
  over: boolean;
  /** The pattern that it was permitted. While the group reads another one, nothing is taken for it. */
  permitted: string;
  asking: boolean;
  /** When the writing of its last sign of life began. Without a fresh one it may have been taken for dead. */
  signedAt: number;
  /** Since then nobody can have taken it for dead; what was taken for it before may be others'. */
  unbrokenSince: number;
}

/** Of faults, those that are about who asks: others pass. */
const refusals = new Set(["permission_denied", "unauthenticated", "not_found", "invalid_argument"]);

/** Whether members may have what their group reads now. */
export interface Asking {
  isPermitted(seat: Seat): boolean;
  /** Asks for those who were permitted something else, also where asking has failed before. */
  askAll(): void;
}

export interface AskingHost {
  seats: ReadonlyMap<string, Seat>;
  /** As it is now. */
  group: () => GroupRow;
  onPermitted: () => void;
}

export function openAsking(
  { log, onDenied }: { log: Log; onDenied: (seat: Seat, fault: Fault) => void },
  { seats, group, onPermitted }: AskingHost,
): Asking {
  const isPermitted = ({ permitted }: Seat): boolean => permitted === group().pattern;

  async function ask(seat: Seat): Promise<void> {
    seat.asking = true;
    try {
      while (!seat.over && !isPermitted(seat)) {
        const { pattern } = group();
        await seat.reader.permit(pattern);
        seat.permitted = pattern;
      }
      onPermitted();
    } catch (error) {
      if (error instanceof Fault && refusals.has(error.kind)) onDenied(seat, error);
      else log.warn("groups.ask_failed", { groupId: group().id, error });
    } finally {
      seat.asking = false;
    }
  }

  return {
    isPermitted,
    askAll() {
      for (const seat of seats.values()) if (!isPermitted(seat) && !seat.asking) void ask(seat);
    },
  };
}
