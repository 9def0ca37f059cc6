import { Fault, sendsAway } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import type { GroupRow } from "./rows.ts";
import type { Seat } from "./seat.ts";

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
      if (error instanceof Fault && sendsAway(error)) onDenied(seat, error);
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
