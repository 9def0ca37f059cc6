import type { BusChannel } from "../../../bus/bus.ts";
import { type Clock, rfc3339 } from "../../../kit/clock.ts";
import type { Log } from "../../../kit/log.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import type { Store } from "../../../store/store.ts";
import type { Frames } from "../../realtime/pubsub/frames.ts";
import { findEvent } from "./event-rows.ts";
import { projectionFrameMs } from "./limits.ts";
import { getRebuild } from "./rebuild-rows.ts";
import { getGenerations, getProjection, type ProjectionKey } from "./rows.ts";
import type { Saved } from "./saves.ts";
import { lagOf, type ProjectionChange, readGeneration } from "./service.ts";
import type { Signals } from "./signals.ts";
import type { StateRow } from "./state-rows.ts";

/** What nodes tell each other: something of this projection changed. */
export interface Moved {
  environmentId: string;
  name: string;
}

/** Tells of changes after their commit: waits, runners and subscribers, on every node. */
export interface Notices {
  changed(change: ProjectionChange): void;
  saved(saved: Saved): void;
}

export interface NoticesDeps {
  store: Store;
  clock: Clock;
  log: Log;
  frames: Pick<Frames, "publish" | "wants">;
  moved: BusChannel<Moved>;
  signals: Signals;
}

/** A partition as one end of a topic: what no pattern could name is written as `%20`. */
const segment = (partition: string): string => partition.replace(/[\s\p{Cc}*>%]/gu, encodeURIComponent);

export function openNotices({ store, clock, log, frames, moved, signals }: NoticesDeps): Notices {
  /** Projections whose cursor moved, and whose health frame is still to be sent. */
  const waiting = new Set<string>();
  moved.listen(({ environmentId, name }) => signals.signal({ environment_id: environmentId, name }));

  async function publishHealth(key: ProjectionKey): Promise<void> {
    const row = await getProjection(store, key);
    if (!row) return;
    const held = { ...row, generations: await getGenerations(store, key) };
    const generation = readGeneration(held);
    const lag = await lagOf(store, held, generation).catch(() => undefined);
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
  }

  const health = (key: ProjectionKey): void => {
    publishHealth(key).catch((error) => log.debug("projections.frame_failed", { name: key.name, error }));
  };

  function noteHealth({ key, kind }: ProjectionChange): void {
    if (kind === "other" || !frames.wants("projections", key.environment_id)) return;
    if (kind === "transition") {
      health(key);
      return;
    }
    const text = `${key.environment_id}\n${key.name}`;
    if (waiting.has(text)) return;
    waiting.add(text);
    clock.after(projectionFrameMs, () => {
      waiting.delete(text);
      health(key);
    });
  }

  async function publishState({ held }: Saved, row: StateRow): Promise<void> {
    if (row.state === null) return;
    const { environment_id: environmentId, name } = held;
    const eventId = row.last_event_id;
    const event = eventId === null ? undefined : await findEvent(store, environmentId, eventId);
    frames.publish(environmentId, `system.projection.${name}.${segment(row.partition_key)}.updated`, {
      state: storedJson(row.state),
      last_event_id: eventId ?? "",
      last_event_name: event?.name ?? "",
    });
  }

  const notices: Notices = {
    changed(change) {
      const { key } = change;
      moved.publish({ environmentId: key.environment_id, name: key.name });
      noteHealth(change);
    },
    saved(saved) {
      const { held, generation, stored, advanced, hasFailed } = saved;
      const { environment_id, name } = held;
      notices.changed({
        key: { environment_id, name },
        kind: advanced.isRebuilt || hasFailed ? "transition" : "move",
      });
      const isRead = generation.generation === held.generation;
      if (!isRead || !frames.wants("projections", environment_id)) return;
      for (const row of stored)
        publishState(saved, row).catch((error) => log.debug("projections.frame_failed", { name, error }));
    },
  };
  return notices;
}
