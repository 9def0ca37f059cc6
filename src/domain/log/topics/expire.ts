import { expireSlicesMax } from "../../../kit/limits.ts";
import { SliceSize } from "../../../kit/slice-size.ts";
import type { Basics, LeaderWrite } from "../../../store/store.ts";
import type { FloorGuard } from "../../record/retention/service.ts";
import { environmentsWithTopics, expireMessages, oldestMessages } from "./rows.ts";

export interface ExpiryDeps extends Basics<"store" | "clock" | "log"> {
  /** In milliseconds; 0 keeps them for ever. */
  keptMs: number;
  /** Guards of those that read topics before the end, such as consumer groups. */
  floorGuards: readonly FloorGuard[];
}

/** Slices of one environment before it is the next one's turn. */
const turnSlicesMax = 20;

/** The tick of `topics.expire`, on the node that leads `retention`: old messages go, a slice at a time. */
export function openExpiry({ store, clock, log, keptMs, floorGuards }: ExpiryDeps) {
  const size = new SliceSize(clock);
  /** Where the walk over the environments goes on with the next tick. */
  let after = "";

  /** What may go now, of the oldest `limit`: everything below the answer; undefined when there is nothing. */
  async function horizon(environmentId: string, needed: number, limit: number): Promise<number | undefined> {
    const before = clock.now() - keptMs;
    const isOld = ({ at, position }: { at: number; position: number }) => at < before && position < needed;
    // A large message takes long to read, and mostly none is old.
    if (!(await oldestMessages(store, environmentId, 1)).some(isOld)) return undefined;
    const oldest = await oldestMessages(store, environmentId, limit);
    const old = oldest.filter(isOld);
    return old.length === 0 ? undefined : old.at(-1)!.position + 1;
  }

  async function expireOf(write: LeaderWrite, environmentId: string, slices: number) {
    let needed = Number.POSITIVE_INFINITY;
    for (const guard of floorGuards) needed = Math.min(needed, (await guard(environmentId)) ?? needed);
    let gone = 0;
    let used = 1;
    for (; used <= slices; used++) {
      const limit = size.rows;
      const floor = await horizon(environmentId, needed, limit);
      if (floor === undefined) break;
      gone += await size.delete(write, (session) => expireMessages(session, environmentId, floor, limit));
      await size.rest();
    }
    return { gone, used, isMore: used > slices };
  }

  return async (write: LeaderWrite): Promise<{ againInMs?: number }> => {
    if (keptMs === 0) return {};
    let left = expireSlicesMax;
    let gone = 0;
    const behind: string[] = [];
    const turn = async (environmentId: string) => {
      const done = await expireOf(write, environmentId, Math.min(left, turnSlicesMax));
      gone += done.gone;
      left -= done.used;
      if (done.isMore) behind.push(environmentId);
    };
    while (left > 0) {
      const [next] = await environmentsWithTopics(store, after, 1);
      after = next?.environment_id ?? "";
      if (!next) break;
      await turn(after);
    }
    // Environments take turns: a long past of one does not delay the others.
    while (left > 0 && behind.length > 0) await turn(behind.shift()!);
    if (gone > 0) log.info("topics.expired", { gone });
    // There is more: soon again, with others in between.
    return left > 0 ? {} : { againInMs: 1_000 };
  };
}
