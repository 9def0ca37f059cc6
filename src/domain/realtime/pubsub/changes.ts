import { platformOrgId } from "../../../gate/gate.ts";
import type { Caller } from "../../../kit/caller.ts";
import { actsForPlatform } from "../../../kit/caller.ts";
import { type Clock, rfc3339 } from "../../../kit/clock.ts";
import type { Operation } from "../../../kit/operation.ts";
import { pacedAtOnce } from "../../../kit/paced.ts";
import { changedBy, type EnvironmentList, type OrgList, type PlatformList } from "./changed-lists.ts";
import type { Frames } from "./frames.ts";
import { movedFrameMs, movedThingsMax } from "./limits.ts";
import type { RunFrames } from "./run-frames.ts";

/** A call that succeeded. */
export interface ChangingCall {
  operation: Operation;
  caller: Pick<Caller, "kind" | "orgId" | "impersonates">;
  environmentId: string;
  input?: unknown;
}

/**
 * Tells subscribers that a list is another now; called after the commit. No call waits or throws. While no
 * node has a subscriber to such frames, a call costs one look into a map.
 */
export type ListChanges = ReturnType<typeof openListChanges>;

/** Where frames of changed lists go, apart from other frames, for an environment or for an org. */
const placeOf = (id: string): string => `changed-${id}`;

/** The places whose frames a subscriber in the environment gets; without one those of the platform. */
export const placesOf = (environmentId: string, orgId: string): string[] =>
  environmentId === "" ? [placeOf(platformOrgId)] : [placeOf(environmentId), placeOf(orgId)];

interface ListChangesDeps {
  clock: Pick<Clock, "now" | "after">;
  frames: Pick<Frames, "publish" | "wants">;
}

/** `system.changed.{list}` and `system.platform.{list}`: each list of a place at most once a pace. */
export function openListChanges({ clock, frames }: ListChangesDeps) {
  const note = pacedAtOnce<{ place: string; namespace: "changed" | "platform"; list: string }>({
    ...{ clock, everyMs: movedFrameMs, itemsMax: movedThingsMax },
    tell: ({ place, namespace, list }) =>
      frames.publish(place, `system.${namespace}.${list}`, { list, timestamp: rfc3339(clock.now()) }),
  });
  const tell = (id: string, namespace: "changed" | "platform", list: string): void => {
    if (!frames.wants("changes")) return;
    const place = placeOf(id);
    if (frames.wants("changes", place)) note(`${place}\n${list}`, { place, namespace, list });
  };
  const changes = {
    ofEnvironment: (environmentId: string, list: EnvironmentList) => tell(environmentId, "changed", list),
    /** Of the platform itself where the org is the platform's. */
    ofOrg(orgId: string, list: OrgList) {
      if (orgId === platformOrgId) changes.ofPlatform(list);
      else tell(orgId, "changed", list);
    },
    ofPlatform: (list: PlatformList) => tell(platformOrgId, "platform", list),
    /** Sends frames of the lists that the operation changes. */
    observe({ operation, caller, environmentId, input }: ChangingCall) {
      if (operation.reads || !frames.wants("changes")) return;
      const isForPlatform = actsForPlatform(caller);
      const { environment = [], org = [], platform = [] } = changedBy(operation.name, isForPlatform);
      for (const list of environment)
        changes.ofEnvironment(operation.environmentOf?.(input as never) || environmentId, list);
      for (const list of org) changes.ofOrg(caller.orgId, list);
      for (const list of platform) changes.ofPlatform(list);
      if (isForPlatform) changes.ofPlatform("audit");
    },
  };
  return changes;
}

/** The same frames of runs; all that moves runs moves what the platform's capacity shows. */
export const tellingCapacity = (frames: RunFrames, moved: () => void): RunFrames => ({
  created(...told) {
    frames.created(...told);
    moved();
  },
  ended(...told) {
    frames.ended(...told);
    moved();
  },
  moved(...told) {
    frames.moved(...told);
    moved();
  },
  claimed(...told) {
    frames.claimed(...told);
    moved();
  },
  resumed(...told) {
    frames.resumed(...told);
    moved();
  },
});
