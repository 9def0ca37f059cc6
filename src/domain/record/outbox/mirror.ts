import { BusError, type Mirror as BusMirror } from "../../../bus/bus.ts";
import { gaugeKeptMs, gaugeWaitMsMax } from "../../../kit/limits.ts";
import { ReadAheadSize } from "../../../kit/slice-size.ts";
import { cachedQuery } from "../../../kit/ttl-cache.ts";
import type { Basics, LeaderWrite } from "../../../store/store.ts";
import type { Past } from "../../log/core/feed-reader.ts";
import { mirrorCharactersMax, mirrorLogsMax, mirrorRoundMs, mirrorSliceMax } from "./limits.ts";
import * as rows from "./rows.ts";
import { type EntryDraft, type MirrorAddress, mirrorDrafts } from "./rules.ts";
import { type Outbox, type OutboxEntry, tooLarge } from "./service.ts";

export interface MirrorDeps extends Basics<"store" | "clock" | "log" | "metrics"> {
  past: Pick<Past, "between">;
  /** Where the messages go. */
  target: BusMirror;
  connected: () => boolean;
  outbox: Pick<Outbox, "refused">;
  payloadBytesMax: number;
}

const lookEveryMs = 1_000;

const messageOf = ({ payload }: EntryDraft | OutboxEntry, place: MirrorAddress) => ({
  subject: place.subject,
  id: place.messageId,
  headers: place.headers,
  payload,
});

/** Sends an event that the bus had refused. */
export async function mirrorAgain(target: BusMirror, entry: OutboxEntry): Promise<void> {
  const place = JSON.parse(entry.metadata) as MirrorAddress;
  const [error] = await target.publish([messageOf(entry, place)]);
  if (error) throw error;
}

/**
 * Sends every event to external subscribers of the bus. It reads the logs from a cursor, so that an emit
 * never waits for it. An event that the bus refuses becomes an outbox entry, and the mirror continues with
 * the next.
 */
export function openMirror(deps: MirrorDeps) {
  const { store, clock, log, target, payloadBytesMax } = deps;
  /** Where the next round continues when a round ran out of time, or the bus did not answer. */
  let after = "";
  let loggedTrouble = "";
  /** Of logs that were read last: as many as their events let fit into a slice. */
  const readAheads = new Map<string, ReadAheadSize>();

  const lag = deps.metrics.gauge({
    name: "svc_mirror_lag_events",
    help: "Events that users of the bus outside have not got yet, as far as one look goes.",
  })();
  const behind = async () => {
    const places = await rows.mirrorProgressAfter(store, "", mirrorLogsMax);
    return places.reduce((sum, { head, position }) => sum + Math.max(0, head - (position ?? 0)), 0);
  };
  const counted = cachedQuery({ clock, keptMs: gaugeKeptMs, waitMsMax: gaugeWaitMsMax, query: behind });
  deps.metrics.beforeReading(async () => lag.set(await counted()));

  /** Mirrors one slice of one log; answers the position that it reached. */
  async function slice(
    write: LeaderWrite,
    { environment_id, head, position }: rows.MirrorProgress,
  ): Promise<number> {
    const readAhead = readAheads.get(environment_id) ?? new ReadAheadSize(mirrorSliceMax);
    if (readAheads.size > mirrorLogsMax) readAheads.clear();
    readAheads.set(environment_id, readAhead);
    const limit = Math.min(mirrorSliceMax, readAhead.limit);
    const page = await deps.past.between(environment_id, { after: position ?? 0, last: head }, limit);
    readAhead.note(
      page.length,
      page.reduce((sum, { data }) => sum + data.length, 0),
    );
    const drafts: EntryDraft[] = [];
    let reached = page.length < limit ? head : page.at(-1)!.position;
    let characters = 0;
    for (const [at, event] of page.entries()) {
      const own = mirrorDrafts(environment_id, event);
      characters += own.reduce((sum, { payload }) => sum + payload.length, 0);
      if (at > 0 && characters > mirrorCharactersMax) {
        // What follows is another slice: the bus answers each within its time, or all of it is sent again.
        reached = page[at - 1]!.position;
        break;
      }
      drafts.push(...own);
    }
    const refused: { draft: EntryDraft; error: BusError }[] = [];
    const fitting = drafts.filter((draft) => {
      const error = tooLarge(draft.payload, payloadBytesMax);
      if (error) refused.push({ draft, error });
      return error === undefined;
    });
    const answers = await target.publish(
      fitting.map((draft) => messageOf(draft, draft.metadata as unknown as MirrorAddress)),
    );
    for (const [at, error] of answers.entries()) if (error) refused.push({ draft: fitting[at]!, error });
    await write(async (session) => {
      for (const { draft, error } of refused) await deps.outbox.refused(session, draft, error);
      await rows.moveMirror(session, environment_id, reached);
    });
    return reached;
  }

  return {
    /** The tick of `outbox.mirror`, on the node that leads `outbox`. */
    async mirrorOnce(write: LeaderWrite): Promise<{ againInMs?: number }> {
      if (!deps.connected()) return { againInMs: lookEveryMs };
      const until = clock.elapsed() + mirrorRoundMs;
      try {
        let isBehind = false;
        // A round that does not begin with the first log leaves those before its beginning.
        let isPartial = after !== "";
        let trouble: { error: unknown } | undefined;
        for (;;) {
          const places = await rows.mirrorProgressAfter(store, after, mirrorLogsMax);
          // One slice of each log in turn; a failure in one does not stop the others.
          for (const place of places) {
            if (place.head <= (place.position ?? 0)) continue;
            try {
              if ((await slice(write, place)) < place.head) isBehind = true;
            } catch (error) {
              if (error instanceof BusError) {
                // Logs behind this one come first the next time.
                after = place.environment_id;
                throw error;
              }
              trouble ??= { error };
            }
          }
          after = places.length < mirrorLogsMax ? "" : places.at(-1)!.environment_id;
          loggedTrouble = "";
          if (trouble && (after === "" || clock.elapsed() >= until)) throw trouble.error;
          if (clock.elapsed() >= until) return { againInMs: 1 };
          if (after !== "") continue;
          if (!isBehind && !isPartial) return {};
          isBehind = false;
          isPartial = false;
        }
      } catch (error) {
        if (!(error instanceof BusError)) throw error;
        // The bus is away: the cursor stays, so nothing is lost, and no attempt is spent.
        if (error.message !== loggedTrouble) log.warn("outbox.mirror_waits", { error });
        loggedTrouble = error.message;
        return { againInMs: lookEveryMs };
      }
    },

    /** The first position that is not mirrored yet: retention stops before it. */
    async leastUnmirrored(environmentId: string): Promise<number> {
      return ((await rows.mirrorProgressOf(store, environmentId))?.position ?? 0) + 1;
    },
  };
}
