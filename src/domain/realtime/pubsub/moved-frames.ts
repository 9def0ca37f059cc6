import { type Clock, rfc3339 } from "../../../kit/clock.ts";
import type { Log } from "../../../kit/log.ts";
import { paced } from "../../../kit/paced.ts";
import type { SchemaChange } from "../../log/schemas/service.ts";
import type { FrameTopic } from "./frame-things.ts";
import type { Frames } from "./frames.ts";
import { movedFrameMs, movedThingsMax } from "./limits.ts";

interface MovedFramesDeps {
  clock: Pick<Clock, "now" | "after">;
  frames: Pick<Frames, "publish" | "wants">;
}

/** A group as frames name it. */
export interface ChangedGroup {
  environment_id: string;
  namespace: string;
  name: string;
}

/** Tells subscribers of frames, after the commit; none of it waits or throws. */
export type GroupAnnouncer = ReturnType<typeof groupFrames>;

export interface GroupId {
  environmentId: string;
  groupId: string;
}

/** What became of a source, or of an endpoint. */
interface MovedWebhook {
  environmentId: string;
  id: string;
  change: string;
}

const pace = { everyMs: movedFrameMs, itemsMax: movedThingsMax };

/**
 * `system.group.{namespace}.{name}.{created|updated|deleted|moved}`; `moved` is made only while somebody
 * reads it: members, positions or deliveries are others now.
 */
export function groupFrames(
  { clock, frames, log }: MovedFramesDeps & { log: Log },
  namesOf: (ids: readonly GroupId[]) => Promise<ChangedGroup[]>,
) {
  const publish = ({ environment_id, namespace, name }: ChangedGroup, change: string): void =>
    frames.publish(environment_id, `system.group.${namespace}.${name}.${change}`, {
      ...{ namespace, name, change },
      timestamp: rfc3339(clock.now()),
    });
  const note = paced<GroupId>({
    ...{ ...pace, clock },
    tell: (ids) =>
      namesOf(ids)
        .then((groups) => {
          for (const group of groups) publish(group, "moved");
        })
        .catch((error) => log.debug("groups.frame_failed", { error })),
  });
  return {
    changed: (change: "created" | "updated" | "deleted", group: ChangedGroup) => publish(group, change),
    /** Its members, its position or its deliveries are others now. */
    moved(environmentId: string, groupId: string) {
      if (frames.wants("groups", environmentId))
        note(`${environmentId}\n${groupId}`, { environmentId, groupId });
    },
  };
}

/** Frames of one kind of webhook; what came or was sent is published only while it has a reader. */
function webhookFrames(kind: "webhook_source" | "webhook_endpoint", often: "received" | "moved") {
  return ({ clock, frames }: MovedFramesDeps) => {
    const publish = ({ environmentId, id, change }: MovedWebhook): void =>
      frames.publish(environmentId, `system.${kind}.${id}.${change}`, {
        ...{ id, change },
        timestamp: rfc3339(clock.now()),
      });
    const note = paced<MovedWebhook>({
      ...{ ...pace, clock },
      tell: (changes) => {
        for (const change of changes) publish(change);
      },
    });
    return (told: MovedWebhook): void => {
      if (told.change !== often) publish(told);
      else if (frames.wants("webhooks", told.environmentId)) note(`${told.environmentId}\n${told.id}`, told);
    };
  };
}

/** `system.webhook_source.{id}.{created|updated|deleted|received}`. */
export const sourceFrames = webhookFrames("webhook_source", "received");

/** `system.webhook_endpoint.{id}.{created|updated|deleted|moved}`. */
export const endpointFrames = webhookFrames("webhook_endpoint", "moved");

/** `system.schema.{event_name}.{registered|deleted}`; `system.enforcement.updated` for the environment. */
export const schemaFrames =
  ({ clock, frames }: MovedFramesDeps) =>
  ({ environmentId, ...told }: SchemaChange): void => {
    const topic: FrameTopic =
      told.change === "enforcement"
        ? "system.enforcement.updated"
        : `system.schema.${told.eventName}.${told.change}`;
    frames.publish(environmentId, topic, { ...told, timestamp: rfc3339(clock.now()) });
  };
