import { type Clock, rfc3339 } from "../../../kit/clock.ts";
import type { Log } from "../../../kit/log.ts";
import { paced } from "../../../kit/paced.ts";
import type { EndpointChange } from "../../integrations/deliveries/endpoints.ts";
import type { SourceChange } from "../../integrations/webhooks/source-changes.ts";
import type { SchemaChange } from "../../log/schemas/service.ts";
import type { ChangedGroup, GroupAnnouncer } from "../groups/definition.ts";
import type { Frames } from "./frames.ts";
import { movedFrameMs, movedThingsMax } from "./limits.ts";

interface MovedFramesDeps {
  clock: Pick<Clock, "now" | "after">;
  frames: Pick<Frames, "publish" | "wants">;
}

const pace = { everyMs: movedFrameMs, itemsMax: movedThingsMax };

/**
 * `system.group.{namespace}.{name}.{created|updated|deleted|moved}`; `moved` is made only while somebody reads it:
 * members, positions or deliveries are others now.
 */
export function groupFrames(
  { clock, frames, log }: MovedFramesDeps & { log: Log },
  namesOf: (ids: readonly GroupId[]) => Promise<ChangedGroup[]>,
): GroupAnnouncer {
  const publish = ({ environment_id, namespace, name }: ChangedGroup, change: string): void =>
    frames.publish(environment_id, `system.group.${namespace}.${name}.${change}`, {
      ...{ namespace, name, change },
      timestamp: rfc3339(clock.now()),
    });
  const note = paced<GroupId>({
    ...{ ...pace, clock },
    tell: (ids) =>
      void namesOf(ids)
        .then((groups) => groups.forEach((group) => publish(group, "moved")))
        .catch((error) => log.debug("groups.frame_failed", { error })),
  });
  return {
    changed: (change, group) => publish(group, change),
    moved(environmentId, groupId) {
      if (frames.wants("groups", environmentId))
        note(`${environmentId}\n${groupId}`, { environmentId, groupId });
    },
  };
}

export interface GroupId {
  environmentId: string;
  groupId: string;
}

/** Frames of one kind of webhook; what came or was sent is told only while somebody reads it. */
function webhookFrames(kind: "webhook_source" | "webhook_endpoint", often: "received" | "moved") {
  return ({ clock, frames }: MovedFramesDeps) => {
    const publish = ({ environmentId, id, change }: SourceChange | EndpointChange): void =>
      frames.publish(environmentId, `system.${kind}.${id}.${change}`, {
        ...{ id, change },
        timestamp: rfc3339(clock.now()),
      });
    const note = paced<SourceChange | EndpointChange>({
      ...{ ...pace, clock },
      tell: (changes) => changes.forEach(publish),
    });
    return (told: SourceChange | EndpointChange): void => {
      if (told.change !== often) publish(told);
      else if (frames.wants("webhooks", told.environmentId)) note(`${told.environmentId}\n${told.id}`, told);
    };
  };
}

/** `system.webhook_source.{id}.{created|updated|deleted|received}`. */
export const sourceFrames = webhookFrames("webhook_source", "received");

/** `system.webhook_endpoint.{id}.{created|updated|deleted|moved}`. */
export const endpointFrames = webhookFrames("webhook_endpoint", "moved");

/** `system.schema.{event_name}.{registered|deleted}`, and `system.enforcement.updated` for the environment. */
export const schemaFrames =
  ({ clock, frames }: MovedFramesDeps) =>
  ({ environmentId, ...told }: SchemaChange): void => {
    const topic =
      told.change === "enforcement"
        ? "system.enforcement.updated"
        : `system.schema.${told.eventName}.${told.change}`;
    frames.publish(environmentId, topic, { ...told, timestamp: rfc3339(clock.now()) });
  };
