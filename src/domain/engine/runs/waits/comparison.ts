import { anyPath, celPath, hashAt, holds } from "../../waits/rules.ts";
import type { MatchedEvent, WaitRow } from "./wait-rows.ts";

/**
 * Answers whether a wait matches this event. The event's JSON is parsed once, and each path is hashed once.
 */
export function comparison(event: MatchedEvent): (wait: WaitRow) => boolean {
  const data: unknown = JSON.parse(event.data);
  const hashes = new Map<string, string | undefined>();
  let seen: Parameters<typeof holds>[1] | undefined;
  return (wait) => {
    if (wait.match_path === anyPath) return true;
    if (wait.match_path === celPath) {
      seen ??= {
        id: event.id,
        name: event.name,
        data,
        metadata: event.metadata === null ? null : (JSON.parse(event.metadata) as unknown),
        version: event.version,
        source: event.source,
        timestamp: event.at,
      };
      return wait.expression !== null && holds(wait.expression, seen);
    }
    if (!hashes.has(wait.match_path)) hashes.set(wait.match_path, hashAt(data, wait.match_path));
    return hashes.get(wait.match_path) === wait.value_hash;
  };
}
