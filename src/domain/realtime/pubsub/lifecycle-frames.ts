import { type Clock, type Instant, rfc3339 } from "../../../kit/clock.ts";
import type { NewEvent } from "../../engine/emit/new-event.ts";
import type { FunctionFrame } from "../../engine/functions/definition.ts";
import type { CronFrame } from "../../engine/schedules/rules.ts";
import type { SecretFrame } from "../../engine/secrets/service.ts";
import type { WorkerFrame } from "../../engine/workers/registry.ts";
import type { StreamFrame } from "../../log/streams/service.ts";
import type { OutboxFrame } from "../../record/outbox/service.ts";
import type { Frames } from "./frames.ts";

type Publisher = Pick<Frames, "publish">;

/** `system.function.{id}.{registered|updated|deleted}`. */
export const functionFrames =
  (frames: Publisher) =>
  ({ change, record, at }: FunctionFrame): void => {
    const { definition, environmentId, status } = record;
    frames.publish(environmentId, `system.function.${definition.id}.${change}`, {
      id: definition.id,
      name: definition.name,
      status,
      preferredMode: definition.mode,
      createdAt: rfc3339(record.createdAt),
      updatedAt: rfc3339(record.updatedAt),
      timestamp: rfc3339(at),
    });
  };

/** `system.function.{id}.unserved`: a run began that no connected worker serves. */
export const unservedFrames =
  (frames: Publisher, clock: Pick<Clock, "now">) =>
  ({ environmentId, functionId }: { environmentId: string; functionId: string }): void =>
    frames.publish(environmentId, `system.function.${functionId}.unserved`, {
      id: functionId,
      timestamp: rfc3339(clock.now()),
    });

const instants = new Set(["nextRun", "windowStart", "windowEnd"]);

/** `system.cron.{functionId}.{registered|removed|invalid|missed}`. */
export const cronFrames =
  (frames: Publisher) =>
  ({ environmentId, functionId, at, leaf, ...extra }: CronFrame): void => {
    const fields = Object.entries(extra).map(([name, value]) => [
      name,
      instants.has(name) ? rfc3339(value as Instant) : value,
    ]);
    frames.publish(environmentId, `system.cron.${functionId}.${leaf}`, {
      functionId,
      environmentId,
      timestamp: rfc3339(at),
      ...Object.fromEntries(fields),
    });
  };

/** `system.worker.{id}.{connected|disconnected|health}`; made only while somebody reads them. */
export const workerFrames =
  (frames: Pick<Frames, "publish" | "wants">, clock: Pick<Clock, "now">) =>
  ({ change, environmentId, workerId, healthy, draining }: WorkerFrame): void => {
    if (!frames.wants("workers", environmentId)) return;
    frames.publish(environmentId, `system.worker.${workerId}.${change}`, {
      workerId,
      health: healthy ? "healthy" : "unhealthy",
      draining,
      timestamp: rfc3339(clock.now()),
    });
  };

type StreamPublisher = Pick<Frames, "publish" | "wants">;

/** `system.stream.{entity_id}.{appended|snapshotted}`; made only while somebody reads them. */
export const streamFrames =
  (frames: StreamPublisher) =>
  (frame: StreamFrame): void => {
    const { change, environmentId, entityId } = frame;
    if (!frames.wants("streams", environmentId)) return;
    frames.publish(environmentId, `system.stream.${entityId}.${change}`, {
      entity_id: entityId,
      entity_type: frame.entityType,
      entity_version: frame.entityVersion,
      ...(frame.eventId !== undefined && { event_id: frame.eventId, event_name: frame.eventName }),
      ...(frame.runId && { run_id: frame.runId }),
      ...(frame.snapshotId !== undefined && { snapshot_id: frame.snapshotId }),
      timestamp: rfc3339(frame.at),
    });
  };

/** The frames of appends, by the events that a flush has committed. */
export const appendFrames = (frames: StreamPublisher) => {
  const publish = streamFrames(frames);
  return ({ id, name, environmentId, entity, runId }: NewEvent, at: Instant): void => {
    if (entity === null || !frames.wants("streams", environmentId)) return;
    publish({
      change: "appended",
      ...{ environmentId, runId, at },
      entityId: entity.id,
      entityType: entity.type,
      entityVersion: entity.version,
      eventId: id,
      eventName: name,
    });
  };
};

/** `system.outbox.{event_id}.{dead_lettered|requeued|discarded}`. */
export const outboxFrames =
  (frames: Publisher) =>
  (frame: OutboxFrame): void => {
    const { change, environmentId, eventId } = frame;
    const fields =
      frame.change === "dead_lettered"
        ? {
            outbox_id: frame.outboxId,
            entity_id: frame.entityId,
            topic: frame.topic,
            kind: frame.kind,
            attempts: frame.attempts,
            last_error: frame.lastError,
          }
        : { result: change };
    frames.publish(environmentId, `system.outbox.${eventId}.${change}`, {
      event_id: eventId,
      environment_id: environmentId,
      ...fields,
      timestamp: rfc3339(frame.at),
    });
  };

/** `system.secret.{name}.{created|updated|deleted}`; a renamed secret is one deletion and one creation. */
export const secretFrames =
  (frames: Publisher) =>
  ({ change, environmentId, name, at }: SecretFrame): void =>
    frames.publish(environmentId, `system.secret.${name}.${change}`, { name, timestamp: rfc3339(at) });
