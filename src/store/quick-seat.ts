import { Fault } from "../kit/fault.ts";
import type { QueryAnswer, QueryAsk } from "./environment-databases.ts";
import { quickMs, type Seat, type Seats } from "./seats.ts";

interface QuerySeat extends Seat {
  query(ask: QueryAsk): Promise<QueryAnswer>;
}

/**
 * Runs a query, also in the seat that is kept for quick ones: what is not over there after `quickMs` is left,
 * and begins again in one of the others. Undefined when none became free.
 */
export async function quickFirst<S extends QuerySeat>(
  seats: Seats<S>,
  environmentId: string,
  ask: QueryAsk,
): Promise<QueryAnswer | undefined> {
  const { timeoutMs } = ask;
  const place = { environmentId, waitMs: timeoutMs };
  const answer = await seats.withAny(place, async (seat, isQuick) => {
    if (!isQuick || timeoutMs <= quickMs) return seat.query(ask);
    return seat.query({ ...ask, timeoutMs: quickMs }).catch((error) => {
      if (error instanceof Fault && error.kind === "deadline_exceeded") return "late" as const;
      throw error;
    });
  });
  return answer === "late" ? seats.with(environmentId, timeoutMs, (seat) => seat.query(ask)) : answer;
}
