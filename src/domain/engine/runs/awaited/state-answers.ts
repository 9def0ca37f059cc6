import type { Instant } from "../../../../kit/clock.ts";
import { bucketOf, runPlace, signalPlace, streamPlace } from "../../waits/rules.ts";
import type { FoundState, StateWait } from "./state-rows.ts";

/**
 * What the state makes of a wait: it is met by `text`, JSON of what the handler gets; or it is looked at
 * again by then without a change, null needs a change.
 */
export type StateAnswer = { kind: "stream" | "key" | "run"; text: string } | { nextLookAt: Instant | null };

const unmet: StateAnswer = { nextLookAt: null };

/** Pure: `found` is what stands there now; undefined when there is nothing. */
export function answerOf(wait: StateWait, found: FoundState | undefined, now: Instant): StateAnswer {
  if (wait.place === streamPlace) return ofStream(wait, found);
  if (wait.place === runPlace) return ofRun(wait, found);
  // The transaction that takes the signal answers.
  if (wait.place === signalPlace) return unmet;
  return ofKey(wait, found, now);
}

function ofStream({ subject, bound }: StateWait, found: FoundState | undefined): StateAnswer {
  if (found?.version == null || found.version < bound!) return unmet;
  const value = { entity_id: subject, entity_type: found.entity_type, version: found.version };
  return { kind: "stream", text: JSON.stringify(value) };
}

function ofRun({ subject }: StateWait, found: FoundState | undefined): StateAnswer {
  if (found?.status == null || found.status === "active") return unmet;
  const { function_id, status, cause, output, output_chars: chars } = found;
  const value = { run_id: subject, function_id, status, ...(cause !== null && { cause }) };
  const parts = [
    JSON.stringify(value).slice(1, -1),
    ...(output !== null ? [`"output":${output}`] : chars !== null ? [`"output_left_out":true`] : []),
    ...(found.error !== null ? [`"error":${found.error}`] : []),
  ];
  return { kind: "run", text: `{${parts.join(",")}}` };
}

/** A key without a row: its deletion may be one of those whose markers are gone, or its bucket is gone. */
const isForgotten = (found: FoundState | undefined, bound: number): boolean =>
  bound > 0 && (found === undefined || bound < (found.forgotten_revision ?? 0));

function ofKey(
  { place, subject, test, bound }: StateWait,
  found: FoundState | undefined,
  now: Instant,
): StateAnswer {
  const revision = found?.revision ?? null;
  const expiresAt = found?.expires_at ?? null;
  const isAlive = found?.operation === "put" && (expiresAt === null || expiresAt > now);
  const isMet = {
    exists: isAlive,
    equals: isAlive && found?.is_equal === 1,
    absent: !isAlive,
    changed: revision === null ? isForgotten(found, bound!) : revision > bound!,
  }[test as "exists" | "equals" | "absent" | "changed"];
  if (!isMet) return { nextLookAt: test === "absent" ? expiresAt : null };
  const value = {
    bucket: bucketOf(place),
    key: subject,
    exists: isAlive,
    ...(revision !== null && { revision }),
  };
  return { kind: "key", text: JSON.stringify(value) };
}
