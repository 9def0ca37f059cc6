import type { BusChannel } from "../../../bus/bus.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { inTurn } from "../../../kit/in-turn.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import type { Basics } from "../../../store/store.ts";
import type { Frames } from "../../realtime/pubsub/frames.ts";
import { namesOf } from "./event-rows.ts";
import { projectionFrameMs } from "./limits.ts";
import { getRebuild } from "./rebuilds/rows.ts";
import { getProjection, type ProjectionKey, type ProjectionRow, readProjection } from "./rows.ts";
import type { Saved } from "./runners/saves.ts";
import { type Signals, textOf } from "./runners/signals.ts";
import { lagOf, type ProjectionChange, readGeneration } from "./service.ts";

/** What nodes tell each other: something of this projection changed. */
export interface Moved {
  environmentId: string;
  name: string;
}

export interface NoticesDeps extends Basics<"store" | "clock" | "log"> {
  frames: Pick<Frames, "publish" | "wants">;
  moved: BusChannel<Moved>;
  /** Whether other nodes may change a projection while this one looks at it. */
  hasOthers: () => boolean;
  signals: Signals;
}

/** A partition as one end of a topic: what no pattern could name is written as `%20`. */
const segment = (partition: string): string =>
  partition.replace(/[\s\p{Cc}*>%]/gu, (sign) => (sign === "*" ? "%2A" : encodeURIComponent(sign)));

/** What a health frame tells, besides how far the projection is. */
const standingOf = (row: ProjectionRow): string =>
  JSON.stringify([row.status, row.mode, row.generation, row.error_message, row.updated_at]);

export function openNotices({ store, clock, log, frames, moved, hasOthers, signals }: NoticesDeps) {
  /** Projections whose cursor moved, and whose health frame is still to be sent. */
  const waiting = new Set<string>();
  /** The last health that subscribers get of a projection is the last one read: two looks may cross. */
  const healthInTurn = inTurn();
  const statesInTurn = inTurn();
  moved.listen(({ environmentId, name }) => signals.signal({ environment_id: environmentId, name }));

  /** Answers what it published; undefined for a projection that is gone. */
  async function publishHealth(key: ProjectionKey): Promise<string | undefined> {
    const held = await readProjection(store, key);
    if (!held) return;
    const generation = readGeneration(held);
    const lag = await lagOf({ store, clock }, held, generation).catch(() => undefined);
    const job = held.generations.some(({ target }) => target !== null)
      ? await getRebuild(store, key)
      : undefined;
    frames.publish(key.environment_id, `system.projection_health.${key.name}`, {
      name: key.name,
      status: held.status,
      mode: held.mode,
      last_event_seq: generation.position,
      error_message: held.error_message ?? "",
      timestamp: rfc3339(clock.now()),
      ...(lag !== undefined && { lag }),
      ...(job && {
        rebuild_target_seq: job.target,
        rebuild_start_cursor: job.start_position,
        rebuild_started_at: rfc3339(job.started_at),
      }),
    });
    return standingOf(held);
  }

  /** Another node may have changed and published it meanwhile, before this one published its older state. */
  async function publishHealthAsIs(key: ProjectionKey): Promise<void> {
    for (;;) {
      const told = await publishHealth(key);
      if (told === undefined || !hasOthers()) return;
      const after = await getProjection(store, key);
      if (!after || standingOf(after) === told) return;
    }
  }

  const failed = (name: string) => (error: unknown) => log.debug("projections.frame_failed", { name, error });

  function noteHealth({ key, kind }: ProjectionChange): void {
    if (kind === "other" || !frames.wants("projections", key.environment_id)) return;
    const text = textOf(key);
    const tell = () => publishHealthAsIs(key).catch(failed(key.name));
    if (kind === "transition") {
      healthInTurn(text, tell);
      return;
    }
    if (waiting.has(text)) return;
    waiting.add(text);
    clock.after(projectionFrameMs, () =>
      healthInTurn(text, () => {
        // Not before its turn: looks that take longer than the pace would pile up.
        waiting.delete(text);
        return tell();
      }),
    );
  }

  /** One query for the names of all events: a save may be of a thousand partitions. */
  async function publishStates({ held, stored }: Saved): Promise<void> {
    const { environment_id: environmentId, name } = held;
    const ids = stored.flatMap((row) => row.last_event_id ?? []);
    const nameOf = new Map((await namesOf(store, environmentId, ids)).map((one) => [one.id, one.name]));
    for (const { state, partition_key: partition, last_event_id: eventId } of stored)
      if (state !== null)
        frames.publish(environmentId, `system.projection.${name}.${segment(partition)}.updated`, {
          state: storedJson(state),
          last_event_id: eventId ?? "",
          last_event_name: nameOf.get(eventId ?? "") ?? "",
        });
  }

  const notices = {
    changed(change: ProjectionChange) {
      const { key } = change;
      moved.publish({ environmentId: key.environment_id, name: key.name });
      noteHealth(change);
    },
    saved(saved: Saved) {
      const { held, generation, advanced, hasFailed } = saved;
      const { environment_id, name } = held;
      notices.changed({
        key: { environment_id, name },
        kind: advanced.isRebuilt || hasFailed ? "transition" : "move",
      });
      const isRead = generation.generation === held.generation;
      if (!isRead || !frames.wants("projections", environment_id)) return;
      statesInTurn(textOf(held), () => publishStates(saved).catch(failed(name)));
    },
  };
  return notices;
}
