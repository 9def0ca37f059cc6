import { combineLanes } from "./limits.ts";

/** The combiner lane of an environment: the same for every verb, so that one tenant's stuck lock stays in its lane. */
export function combineLaneOf(environmentId: string): number {
  let hash = 0;
  for (let place = 0; place < environmentId.length; place++)
    hash = (Math.imul(hash, 31) + environmentId.charCodeAt(place)) | 0;
  return Math.abs(hash) % combineLanes;
}
